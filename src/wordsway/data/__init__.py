"""Real data: film reviews, small images, and the caches of what they cost to prepare.

Files come from offline packages, whose checksums are verified, or from the hub. They are read; no code that comes with
them is ever run.

The public names are in `__init__.pyi`; each is loaded when it is first used.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
