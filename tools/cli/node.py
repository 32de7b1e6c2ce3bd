"""``forager node``: this machine as a device of a federation."""

from pathlib import Path
from typing import Annotated

import typer

from .options import app, errors_in_words, examples


@app.command(
    epilog=examples(
        ("forager node fl.example.org:9092 --name camera-7 --data train.npz --ca ca.crt", "first"),
        ("forager node 127.0.0.1:9092 --name one --partition 1/3 --insecure", "on one machine"),
        ("forager node ... --unit > /etc/systemd/system/forager-node.service", "start it at boot"),
    )
)
def node(
    server: Annotated[str, typer.Argument(help="HOST:PORT of the server's SuperLink.")],
    name: Annotated[str, typer.Option(help="What the device is called, for all its life.")],
    data: Annotated[
        Path | None, typer.Option(help="Its own samples: an .npz file with x_train and y_train.")
    ] = None,
    partition: Annotated[
        str, typer.Option(help="For trials, instead of --data: a part of the task's data, as 2/3.")
    ] = "",
    state_dir: Annotated[
        Path | None, typer.Option(help="Its key and state; ~/.forager/NAME by default.")
    ] = None,
    ca: Annotated[
        Path | None, typer.Option(help="The server's ca.crt, needed at the first start.")
    ] = None,
    tags: Annotated[str, typer.Option(help="Tags by which runs choose it, as gpu,site-a.")] = "",
    port: Annotated[
        int, typer.Option(help="Port on loopback that Flower's processes use among themselves.")
    ] = 9094,
    insecure: Annotated[
        bool, typer.Option("--insecure", help="Without TLS and key: for trials on one machine.")
    ] = False,
    unit: Annotated[
        bool, typer.Option("--unit", help="Print a systemd unit that runs this, and end.")
    ] = False,
) -> None:
    """Run a Flower SuperNode with a resident worker, and start it again whenever it ends.

    The first start makes the device's key; the server has to register its public half.
    """
    from ..flower.node import Device, keep_running

    state = (state_dir or Path.home() / ".forager" / name).expanduser().resolve()
    samples = data.expanduser().absolute() if data else None
    device = Device(server, name, state, samples, partition, tags, port, insecure)
    with errors_in_words():
        device.prepare(ca)
        if unit:
            print(device.unit())
        else:
            raise typer.Exit(keep_running(device))
