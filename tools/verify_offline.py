"""Check that the installed models, reviews and images are byte for byte the published ones."""

import sys

from wordsway.data import offline
from wordsway.errors import WordswayError


def main() -> None:
    """Verify their checksums, or stop with one line and the remedy."""
    for file in (offline.WEIGHTS, offline.DECODER, offline.REVIEWS, offline.MNIST):
        try:
            offline.verify(file, offline.locate(file))
        except WordswayError as error:
            sys.exit(f"error: {error}")
        print(f"Verified {file.package}: {file.inside}")


if __name__ == "__main__":
    main()
