"""Real data: film reviews, small images, and the caches of what they cost to prepare.

Files come from offline packages, whose checksums are verified, or from the hub. They are read; no code that comes with
them is ever run.
"""

from wordsway.data.images import image_samples

__all__ = ["image_samples"]
