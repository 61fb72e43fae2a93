"""wordsway: how far can one word move a model?

The public names are in `__init__.pyi`; each is loaded when it is first used, so that importing the package is quick.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)

__version__ = "0.2.0"
