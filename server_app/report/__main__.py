"""Write the report of a run again: ``python -m server_app.report runs/<time>``."""

import sys

from server_app.report import summary_table, write_report
from server_app.run_folder import RunFolder, RunFolderError


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
    folder.write_rounds_csv(folder.read_events())
    write_report(folder)
    print(summary_table(folder))
    return 0


if __name__ == "__main__":
    sys.exit(main())
