"""``forager report``, ``watch`` and ``donors``: of a run, as it goes, and who helps whom."""

import webbrowser
from pathlib import Path

from typer import Argument, Exit, Option

from .options import RunArgument, RunsOption, TrustOption, command, run_folder


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


@command(
    ("forager donors", "the newest run that compared its clients"),
    ("forager donors runs/mine --of 3", "all donors of one client"),
)
def donors(
    run: RunArgument = "latest",
    of: str = Option("", help="The client whose donors are all shown."),
    runs: RunsOption = Path("runs"),
    trust: TrustOption = False,
) -> None:
    """Rank the donors of each client by the similarities that a run has found (IOS).

    In simulation, where the clients' data can be loaded again, the ranking is compared with their
    labels and with KNN-Shapley; this is added to the events and the report.
    """
    from ...server_app.run_folder import RunFolder
    from ..donor_ranking import donors_table, rank_donors
    from ..report import write_report
    from ..trust import find_own_modules

    folder = RunFolder.open(run_folder(run, runs))
    if trust:
        find_own_modules()
    found = rank_donors(folder, trust=trust)
    table = donors_table(found, of)
    print(table.text())
    if not found.scores:
        print("\nThe data of these clients cannot be loaded here: nothing to compare with.")
        return
    print()
    for name, value in found.scores.items():
        print(f"{name}: {value:.3f}")
    event = found.event().to_dict()
    if not any(all(event[key] == old.get(key) for key in event) for old in folder.read_events()):
        folder.append_event(event)
    write_report(folder)
