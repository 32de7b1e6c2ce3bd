"""``forager doctor``: what works here, and how to fix what does not."""

from pathlib import Path

from typer import Exit, Option

from .options import command

_MARKS = {"ok": ("ok", "green"), "note": ("note", "yellow"), "bad": ("BAD", "bold red")}


@command(
    ("forager doctor", "all checks; exit code 1 if training cannot work"),
    ("forager doctor --server fl.example.org:9092", "can a SuperNode here reach a server?"),
)
def doctor(
    server: str = Option("", help="HOST:PORT of a SuperLink: check only what answers there."),
    ca: Path | None = Option(None, help="Certificate (ca.crt) of that server, if it uses TLS."),
) -> None:
    """Check versions, GPU, Flower, Chromium, Docker, ports, disk and data of this machine."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from ..checks import all_findings
    from ..flower.reach import server_finding

    table = Table.grid(padding=(0, 2))
    worst = False
    for finding in [server_finding(server, ca)] if server else all_findings():
        word, style = _MARKS[finding.state]
        worst = worst or finding.state == "bad"
        text = Text(finding.found)
        if finding.advice:
            text.append(f"\n-> {finding.advice}", style="dim")
        table.add_row(Text(word, style=style), finding.name, text)
    Console(highlight=False).print(table)
    raise Exit(1 if worst else 0)
