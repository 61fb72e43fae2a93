# The public names, module by module.
# isort: skip_file

from .images import image_samples as image_samples
