"""``forager node``: this machine as a device of a federation; ``forager server``: a SuperLink."""

from pathlib import Path

from typer import Argument, Exit, Option

from .options import command


@command(
    ("forager node fl.example.org:9092 --name camera-7 --data train.npz --ca ca.crt", "first"),
    ("forager node 127.0.0.1:9092 --name one --partition 1/3 --insecure", "on one machine"),
    ("forager node ... --unit > /etc/systemd/system/forager-node.service", "start it at boot"),
)
def node(
    server: str = Argument(..., help="HOST:PORT of the server's SuperLink."),
    name: str = Option(..., help="What the device is called, for all its life."),
    data: Path | None = Option(
        None, help="Its own samples: an .npz file with x_train and y_train."
    ),
    partition: str = Option(
        "", help="For trials, instead of --data: a part of the task's data, as 2/3."
    ),
    state_dir: Path | None = Option(None, help="Its key and state; ~/.forager/NAME by default."),
    ca: Path | None = Option(None, help="The server's ca.crt, needed at the first start."),
    tags: str = Option("", help="Tags by which runs choose it, as gpu,site-a."),
    port: int = Option(9094, help="Port on loopback that Flower's processes use among themselves."),
    insecure: bool = Option(
        False, "--insecure", help="Without TLS and key: for trials on one machine."
    ),
    unit: bool = Option(False, "--unit", help="Print a systemd unit that runs this, and end."),
) -> None:
    """Run a Flower SuperNode with a resident worker, and start it again whenever it ends.

    The first start makes the device's key; the server has to register its public half.
    """
    from ..flower.node import Device, keep_running

    state = (state_dir or Path.home() / ".forager" / name).expanduser().resolve()
    samples = data.expanduser().absolute() if data else None
    device = Device(server, name, state, samples, partition, tags, port, insecure)
    device.prepare(ca)
    if unit:
        print(device.unit())
    else:
        raise Exit(keep_running(device))


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
