"""Compare strategies on one task: ``python -m compare --help``."""

import sys

from .command import main

if __name__ == "__main__":
    sys.exit(main())
