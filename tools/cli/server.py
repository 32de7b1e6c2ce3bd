"""``forager server``: a SuperLink with safe defaults."""

from pathlib import Path

from typer import Option

from .options import command


@command(
    ("forager server --name fl.example.org", "in the folder that is to hold runs/"),
    ("forager server --insecure", "a trial on one machine"),
)
def server(
    name: list[str] | None = Option(None, help="Name or address that devices dial; repeatable."),
    port: int = Option(9092, help="Port that devices connect to."),
    control_port: int = Option(
        8000, help="Port on loopback that takes commands, such as flwr run."
    ),
    state_dir: Path = Option(
        Path("~/.forager/server"), help="Its keys, certificates and database."
    ),
    insecure: bool = Option(
        False, "--insecure", help="Without TLS and keys, for devices on this machine."
    ),
) -> None:
    """Run a Flower SuperLink: TLS, registered devices only, commands from this machine only.

    The first start makes an authority and a certificate, and names the server "forager" for flwr.
    """
    from ..flower.server import Server

    chosen = Server(tuple(name or ()), port, control_port, state_dir.expanduser(), insecure)
    chosen.run()
