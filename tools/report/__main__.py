"""Write the report of a run again: ``python -m forager.tools.report runs/<time>``."""

import sys

from ...server_app.run_folder import RunFolder, RunFolderError
from . import summary_table, write_report, write_rounds_csv


def main() -> int:
    """Write the table, the report, and print the summary."""
    if len(sys.argv) != 2:
        print(__doc__, file=sys.stderr)
        return 2
    try:
        folder = RunFolder.open(sys.argv[1])
    except RunFolderError as error:
        print(error, file=sys.stderr)
        return 1
    write_rounds_csv(folder)
    write_report(folder)
    print(summary_table(folder))
    return 0


if __name__ == "__main__":
    sys.exit(main())
