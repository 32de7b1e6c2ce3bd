"""Write the lock files: every package with its version and the hashes of its files.

``make lock`` runs this after a change of ``pyproject.toml`` or ``constraints.txt``. Versions are
those of ``constraints.txt``; the package index adds hashes for all platforms. Each package is in
one file: ``device.txt`` has what a device needs, ``server.txt`` what a server needs beside,
``dev.txt`` the rest of `make venv`, ``audit.txt`` the tools of `make audit`.

There are two builds of PyTorch. ``torch.txt`` is that of the package index, with the CUDA packages
that it needs on Linux, ``torch-cpu.txt`` the CPU build, from an index of its own. Hashes of the
latter are those of that index and of wheels in ``PIP_FIND_LINKS``, where there are any; those found
earlier stay.
"""

import hashlib
import os
import re
import subprocess
import sys
from pathlib import Path
from urllib.error import URLError
from urllib.request import urlopen

HERE = Path(__file__).parent
CPU_INDEX = os.environ.get("TORCH_INDEX", "https://download.pytorch.org/whl/cpu")
DEVICE = ("vision",)
SERVER = (*DEVICE, "server", "datasets", "backbone", "prometheus")
DEV = (*SERVER, "simulation", "tensorboard", "dev")
_HASH = re.compile(r"--hash=sha256:([0-9a-f]{64})")
_TORCH = ("torch", "nvidia-", "cuda-", "triton")

Blocks = dict[str, str]


def resolved(source: str, *options: str, python: str = "3.11") -> Blocks:
    """Return what uv finds for a file of requirements: the text of each package by its name."""
    command = [sys.executable, "-m", "uv", "pip", "compile", source, *options, "--quiet"]
    command += ["--universal", "--python-version", python, "--constraint", "constraints.txt"]
    command += ["--generate-hashes", "--no-annotate", "--no-header"]
    env = {**os.environ, "UV_PYTHON_DOWNLOADS": "never"}
    done = subprocess.run(
        command, cwd=HERE.parent, env=env, stdout=subprocess.PIPE, text=True, check=True
    )
    blocks: Blocks = {}
    for block in re.split(r"\n(?=\S)", done.stdout.strip()):
        name = re.split(r"[=<>; \[]", block, maxsplit=1)[0]
        blocks[name] = f"{blocks.get(name, '')}{block}\n"  # a version for each Python, perhaps
    return blocks


def extras(*names: str) -> list[str]:
    """Return uv's options for some extras."""
    return [word for name in names for word in ("--extra", name)]


def cpu_hashes(version: str) -> set[str]:
    """Return the hashes of the CPU build of PyTorch, as far as it can be found."""
    wheels = [
        wheel
        for folder in os.environ.get("PIP_FIND_LINKS", "").split()
        for wheel in Path(folder).glob(f"torch-{version}+cpu-*.whl")
    ]
    found = {hashlib.sha256(wheel.read_bytes()).hexdigest() for wheel in wheels}
    try:
        with urlopen(f"{CPU_INDEX}/torch/", timeout=20) as page:
            text = page.read().decode()
    except (URLError, OSError) as error:
        print(f"the index of CPU builds cannot be read ({error}): hashes found earlier stay")
        return found
    pattern = rf"torch-{re.escape(version)}(?:\+|%2B)cpu-[^\"']*#sha256=([0-9a-f]{{64}})"
    return found | set(re.findall(pattern, text))


def cpu_build(version: str) -> str:
    """Return the requirement of PyTorch's CPU build, with the hashes of now and before."""
    first, known = f"torch=={version}+cpu", HERE / "torch-cpu.txt"
    text = known.read_text(encoding="utf-8") if known.exists() else ""
    before = _HASH.findall(text) if f"\n{first} " in text else []
    hashes = sorted({*before, *cpu_hashes(version)})
    return " \\\n    ".join([first, *(f"--hash=sha256:{each}" for each in hashes)]) + "\n"


def write(name: str, blocks: Blocks) -> None:
    """Write one lock file."""
    head = "# Written by `make lock`; what it is for: locks/write.py\n"
    (HERE / name).write_text(head + "".join(blocks.values()), encoding="utf-8")
    print(f"locks/{name}: {len(blocks)} packages")


def main() -> None:
    """Write all of them."""
    device = resolved("pyproject.toml", *extras(*DEVICE))
    server = resolved("pyproject.toml", *extras(*SERVER))
    # Some tools of development ask for a late release of Python 3.11.
    everything = resolved("pyproject.toml", *extras(*DEV), python="3.11.5")
    torch = {name: text for name, text in everything.items() if name.startswith(_TORCH)}
    torch.pop("torchvision")
    left = {name: text for name, text in everything.items() if name not in torch}
    layers = {"device.txt": device, "server.txt": server, "dev.txt": everything}
    for file, names in layers.items():
        write(file, {name: left.pop(name) for name in sorted(names) if name in left})
    write("torch.txt", torch)
    (version,) = re.findall(r"^torch==([0-9.]+)", torch["torch"])
    write("torch-cpu.txt", {"torch": cpu_build(version)})
    write("audit.txt", resolved("locks/audit.in"))


if __name__ == "__main__":
    main()
