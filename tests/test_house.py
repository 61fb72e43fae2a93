"""The most important check of the architecture, under its former name."""

from test_architecture import (
    test_packages_import_only_from_packages_above as test_packages_import_only_from_packages_above,
)
