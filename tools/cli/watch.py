"""``forager watch``: follow runs live, in the terminal or in a browser."""

from pathlib import Path
from typing import Annotated

import typer

from .options import RunsOption, app, errors_in_words, examples, run_folder


@app.command(
    epilog=examples(
        ("forager watch", "the newest run, in the terminal"),
        ("forager watch --web", "all runs in runs/, side by side in a browser"),
        ("forager watch --web --runs comparisons/digits/runs", "the runs of a comparison"),
    )
)
def watch(
    run: Annotated[
        list[str] | None,
        typer.Argument(metavar="[RUN]...", help="Folders of runs; the newest by default."),
    ] = None,
    runs: RunsOption = Path("runs"),
    web: Annotated[bool, typer.Option("--web", help="As a page on 127.0.0.1.")] = False,
    port: Annotated[int, typer.Option(help="Port of the page; 0 uses the default.")] = 0,
    open_it: Annotated[bool, typer.Option("--open", help="Open the page in the browser.")] = False,
    poll: Annotated[float, typer.Option(help="Seconds between checks of the logs.")] = 0.5,
) -> None:
    """Show a run as it goes: accuracy, who trains, who is late, bytes, time left.

    Reads events.jsonl and nothing else, so it works for every way to run, even over SSH.
    """
    with errors_in_words():
        named = [run_folder(name, runs) for name in run or [] if name != "latest"]
        if web:
            from ..live.server import serve

            raise typer.Exit(serve(runs, named, port=port, poll=poll, open_it=open_it))
        from ..report.watch.follow import follow

        raise typer.Exit(follow(str(named[0]) if named else "latest", runs, poll))
