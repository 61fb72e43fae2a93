"""`python -m wordsway`: the command line."""

from wordsway.cli import main

if __name__ == "__main__":
    main()
