"""``forager server``: a SuperLink with safe defaults."""

from pathlib import Path
from typing import Annotated

import typer

from .options import app, errors_in_words, examples


@app.command(
    epilog=examples(
        ("forager server --name fl.example.org", "in the folder that is to hold runs/"),
        ("forager server --insecure", "a trial on one machine"),
    )
)
def server(
    name: Annotated[
        list[str] | None,
        typer.Option(help="Name or address that devices dial; repeatable."),
    ] = None,
    port: Annotated[int, typer.Option(help="Port that devices connect to.")] = 9092,
    control_port: Annotated[
        int, typer.Option(help="Port on loopback that takes commands, such as flwr run.")
    ] = 8000,
    state_dir: Annotated[Path, typer.Option(help="Its keys, certificates and database.")] = Path(
        "~/.forager/server"
    ),
    insecure: Annotated[
        bool, typer.Option("--insecure", help="Without TLS and keys, for devices on this machine.")
    ] = False,
) -> None:
    """Run a Flower SuperLink: TLS, registered devices only, commands from this machine only.

    The first start makes an authority and a certificate, and names the server "forager" for flwr.
    """
    from ..flower.server import Server

    with errors_in_words():
        chosen = Server(tuple(name or ()), port, control_port, state_dir.expanduser(), insecure)
        chosen.run()
