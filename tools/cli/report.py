"""``forager report``: the report of a run; ``forager watch``: runs as they go."""

import webbrowser
from pathlib import Path

from typer import Argument, Exit, Option

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


@command(
    ("forager watch", "the newest run, in the terminal"),
    ("forager watch --web", "all runs in runs/, side by side in a browser"),
    ("forager watch --web --runs comparisons/digits/runs", "the runs of a comparison"),
)
def watch(
    run: list[str] | None = Argument(
        None, metavar="[RUN]...", help="Folders of runs; the newest by default."
    ),
    runs: RunsOption = Path("runs"),
    web: bool = Option(False, "--web", help="As a page on 127.0.0.1."),
    port: int = Option(0, help="Port of the page; 0 uses the default."),
    open_it: bool = Option(False, "--open", help="Open the page in the browser."),
    poll: float = Option(0.5, help="Seconds between checks of the logs."),
) -> None:
    """Show a run as it goes: accuracy, who trains, who is late, bytes, time left.

    Reads events.jsonl and nothing else, so it works for every way to run, even over SSH.
    """
    named = [run_folder(name, runs) for name in run or [] if name != "latest"]
    if web:
        from ..live.server import serve

        raise Exit(serve(runs, named, port=port, poll=poll, open_it=open_it))
    from ..report.watch.follow import follow

    raise Exit(follow(str(named[0]) if named else "latest", runs, poll))
