"""Write the report of a run again: the same as ``forager report``."""

import sys

from ..cli.app import main

if __name__ == "__main__":
    sys.exit(main(["report", *sys.argv[1:]]))
