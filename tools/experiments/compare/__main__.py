"""Compare strategies on one task: the same as ``forager compare``."""

import sys

from .command import main

if __name__ == "__main__":
    sys.exit(main())
