"""Pre-trained transformers, and real texts as they embed them.

This is the only package that knows the files of models and the library transformers. It reads files; it never runs code
that comes with them.

The public names are in `__init__.pyi`; each is loaded when it is first used.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
