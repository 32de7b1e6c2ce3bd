"""``forager watch``: follow runs live, in the terminal or in a browser."""

from pathlib import Path

from typer import Argument, Exit, Option

from .options import RunsOption, command, run_folder


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
