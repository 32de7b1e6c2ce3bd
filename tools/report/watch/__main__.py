"""Follow a run in the terminal: the same as ``forager watch``."""

import sys

from ...cli.app import main

if __name__ == "__main__":
    sys.exit(main(["watch", *sys.argv[1:]]))
