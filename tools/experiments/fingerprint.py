"""What a run depends on beside its settings: the content of data files and the user's own code."""

import hashlib
import json
from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from modulefinder import ModuleFinder
from pathlib import Path

import torch

from ...core.config.overrides import own_modules
from ...core.storage.files import write_atomically
from ...core.tasks import Samples, Split, Task

MOST_CLIENTS = 200  # of a task of the user's own, whose data are looked at
_BLOCK = 1 << 20


def files_of(config: Mapping[str, object]) -> list[Path]:
    """Return the files that a run reads by its config: data, and modules of the user's own."""
    task = str(config.get("task", ""))
    named = [
        str(config.get("data.path", "")),
        task.removeprefix("hf:") if task[:3] == "hf:" else "",
    ]
    places = [Path(name).expanduser() for name in named if name]
    found = [file for place in places for file in _below(place)]
    return list(dict.fromkeys([*found, *(file for m in own_modules(config) for file in _code(m))]))


def _below(place: Path) -> Iterator[Path]:
    if place.is_file():
        yield place.resolve()
    elif place.is_dir():
        yield from (file.resolve() for file in sorted(place.rglob("*")) if file.is_file())


def _code(module: str) -> list[Path]:
    """Return the file of a module, and those beside it that it imports."""
    found = find_spec(module.partition(".")[0])
    if found is None or found.origin is None:
        return []
    top = Path(found.origin).resolve()
    folder = top.parent.parent if found.submodule_search_locations else top.parent
    finder = ModuleFinder(path=[str(folder)])
    finder.import_hook(module)
    files = (getattr(found, "__file__", None) for found in finder.modules.values())
    return sorted(Path(file) for file in files if file)


def fingerprint(config: Mapping[str, object], task: Task, clients: int, cache: Path) -> str:
    """Return a digest of a config's files and own data; `cache` (JSON) keeps those of files."""
    try:
        known = json.loads(cache.read_bytes())
    except (OSError, ValueError):
        known = {}
    seen: dict[str, list[object]] = {}
    for file in files_of(config):
        stat, before = file.stat(), known.get(str(file), [0, 0, ""])
        same = before[:2] == [stat.st_size, stat.st_mtime_ns]
        seen[str(file)] = [stat.st_size, stat.st_mtime_ns, before[2] if same else _digest(file)]
    if seen and seen != known:
        write_atomically(cache, json.dumps(seen).encode())
    parts = [f"{Path(name).name} {digest}" for name, (_, _, digest) in seen.items()]
    if any(setting.startswith("task") for setting in own_modules(config).values()):
        parts.append(_of_data(task, clients))  # its code may read anything
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16] if parts else ""


def _digest(file: Path) -> str:
    found = hashlib.sha256()
    with file.open("rb") as data:
        while block := data.read(_BLOCK):
            found.update(block)
    return found.hexdigest()


def _of_data(task: Task, clients: int) -> str:
    held = task.all_client_data(range(min(clients, MOST_CLIENTS)), clients)
    found, server = hashlib.sha256(), task.server_data()
    for samples in [server.test, *(part for c in held for part in (c.train, c.test))]:
        found.update(f"{len(samples)}".encode())
        for tensor in _tensors(samples):
            found.update(tensor.contiguous().numpy().tobytes())
    return found.hexdigest()


def _tensors(samples: Samples) -> list[torch.Tensor]:
    """Return the data in memory; of what is read when needed, the first target."""
    if isinstance(samples, Split):
        return [samples.x, samples.y]
    return [next(iter(samples.batches(1)))[1]] if len(samples) else []
