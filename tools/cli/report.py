"""``forager report``: write and open the report of a run."""

import webbrowser
from pathlib import Path
from typing import Annotated

import typer

from .options import RunArgument, RunsOption, app, errors_in_words, examples, run_folder


@app.command(
    epilog=examples(
        ("forager report --open", "the newest run, in the browser"),
        ("forager report runs/mine", "write it again, print the summary"),
    )
)
def report(
    run: RunArgument = "latest",
    runs: RunsOption = Path("runs"),
    open_it: Annotated[bool, typer.Option("--open", help="Open it in the browser.")] = False,
) -> None:
    """Write report.html and rounds.csv of a run, however far it came, and print the summary."""
    from ...server_app.run_folder import RunFolder
    from ..report import summary_table, write_report, write_rounds_csv

    with errors_in_words():
        folder = RunFolder.open(run_folder(run, runs))
        write_rounds_csv(folder)
        page = write_report(folder)
    print(summary_table(folder))
    if open_it and not webbrowser.open(page.resolve().as_uri()):
        print("no browser was found: copy the path of the report into yours")
