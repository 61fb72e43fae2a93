"""Experiments: trials on a grid, claims about their results, and the runner and the store that keep them.

The public names are in `__init__.pyi`; each is loaded when it is first used.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
