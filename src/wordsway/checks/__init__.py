"""Checks of arguments: each returns the value in the form that is used, or raises an `InputError` of one line.

The names are in `__init__.pyi`; those of arrays load PyTorch when they are first used.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
