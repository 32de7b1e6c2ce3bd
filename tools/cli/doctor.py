"""``forager doctor``: what works here, and how to fix what does not."""

import typer

from .options import examples

_MARKS = {"ok": ("ok", "green"), "note": ("note", "yellow"), "bad": ("BAD", "bold red")}


def add_to(app: typer.Typer) -> None:
    """Add the command."""
    app.command(
        epilog=examples(("forager doctor", "all checks; exit code 1 if training cannot work"))
    )(doctor)


def doctor() -> None:
    """Check versions, GPU, Flower, Chromium, Docker, ports, disk and data of this machine."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from ..checks import all_findings

    table = Table.grid(padding=(0, 2))
    worst = False
    for finding in all_findings():
        word, style = _MARKS[finding.state]
        worst = worst or finding.state == "bad"
        text = Text(finding.found)
        if finding.advice:
            text.append(f"\n-> {finding.advice}", style="dim")
        table.add_row(Text(word, style=style), finding.name, text)
    Console(highlight=False).print(table)
    raise typer.Exit(1 if worst else 0)
