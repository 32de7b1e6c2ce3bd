"""Start this container's SuperNode, once it is sure that the device has what it needs.

Read from the environment: ``NAME`` (stays the same for the life of the device), ``SERVER``,
``DATA`` (the device's own data), and for trials without any ``PARTITION``, such as ``2/3``.
"""

import os
import sys
from collections.abc import Mapping
from pathlib import Path

CREDENTIALS = Path("/credentials")
STATE = Path("/state")
ADVICE = """This device is {name}. If it ends with code 305:
  2004: the server has not enrolled its key, has revoked it, or has not yet noticed that its last
        session crashed (that takes a minute; nothing to do)
  CERTIFICATE_VERIFY_FAILED: it has another server's ca.crt, or the server's certificate does not
        name {server}"""


def node_config(name: str, data: Path, partition: str) -> str:
    """Return what the ClientApp is told about its device.

    >>> node_config("camera-7", Path("/none"), "2/3")
    "client-id='camera-7' state-dir='/state' partition-id=1 num-partitions=3"
    """
    settings = f"client-id='{name}' state-dir='{STATE}'"
    if data.exists():
        return f"{settings} data-path='{data}'"
    position, _, count = partition.partition("/")
    if not count:
        raise FileNotFoundError(
            f"{data}: there is no such file. Mount the folder with the device's data there "
            "(DEVICE_DATA), or set PARTITION=1/3 for a trial with a part of a built-in data set"
        )
    return f"{settings} partition-id={int(position) - 1} num-partitions={int(count)}"


def problems(data: Path, credentials: Path = CREDENTIALS, state: Path = STATE) -> list[str]:
    """Return what keeps this device from taking part."""
    found = [
        f"{path} is missing: run device-key first (docker/README.md)"
        for path in (credentials / "ca.crt", credentials / "key")
        if not path.exists()
    ]
    if data.exists() and not os.access(data, os.R_OK):
        found.append(f"{data} cannot be read by user {os.getuid()}: change its permissions")
    if not os.access(state, os.W_OK):
        found.append(f"{state} cannot be written by user {os.getuid()}: mount a volume there")
    return found


def command(env: Mapping[str, str]) -> list[str]:
    """Return the SuperNode's command line."""
    config = node_config(env["NAME"], Path(env["DATA"]), env.get("PARTITION", ""))
    return [
        "flower-supernode",
        f"--superlink={env['SERVER']}",
        f"--root-certificates={CREDENTIALS / 'ca.crt'}",
        f"--auth-supernode-private-key={CREDENTIALS / 'key'}",
        "--health-server-address=127.0.0.1:9100",
        f"--node-config={config}",
    ]


def main() -> None:
    """Check, then become the SuperNode."""
    if found := problems(Path(os.environ["DATA"])):
        sys.exit("\n".join(found))
    try:
        arguments = command(os.environ)
    except (FileNotFoundError, ValueError) as error:
        sys.exit(str(error))
    print(ADVICE.format(name=os.environ["NAME"], server=os.environ["SERVER"]), flush=True)
    os.execvp(arguments[0], arguments)


if __name__ == "__main__":
    main()
