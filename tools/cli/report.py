"""``forager report``: write and open the report of a run."""

import webbrowser
from pathlib import Path

from typer import Option

from .options import RunArgument, RunsOption, command, run_folder


@command(
    ("forager report --open", "the newest run, in the browser"),
    ("forager report runs/mine", "write it again, print the summary"),
)
def report(
    run: RunArgument = "latest",
    runs: RunsOption = Path("runs"),
    open_it: bool = Option(False, "--open", help="Open it in the browser."),
) -> None:
    """Write report.html and rounds.csv of a run, however far it came, and print the summary."""
    from ...server_app.run_folder import RunFolder
    from ..report import summary_table, write_report, write_rounds_csv

    folder = RunFolder.open(run_folder(run, runs))
    write_rounds_csv(folder)
    page = write_report(folder)
    print(summary_table(folder))
    if open_it and not webbrowser.open(page.resolve().as_uri()):
        print("no browser was found: copy the path of the report into yours")
