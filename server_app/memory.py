"""Whether a run fits into memory, asked before it starts instead of found out in its third hour."""

import os
from pathlib import Path

from flwr.serverapp import Grid

from ..core.config import ConfigError, RunConfig
from ..core.methods.catalogue import chosen
from ..strategies.federation.clock import ClockedGrid

_LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")
_PROGRAM = 2**29  # bytes of Python, torch and a server's data
_MODELS = 16  # that any run has at a time: old and new, in messages, sums and a pull of replies
_GB = 2**30


def check_memory(config: RunConfig, model_bytes: int, grid: Grid) -> None:
    """Refuse a run that needs more memory than there is, by what its methods hold per client."""
    clients = len(list(grid.get_node_ids())) or config.num_clients
    count, share = config.participation()
    asked = max(1, min(count or round(share * clients), clients))
    simulated = clients if isinstance(grid, ClockedGrid) else 0
    held = {}
    for method in chosen(config.axes()):
        per_reply = method.models_per_reply
        per_reply += method.models_per_simulated_reply if simulated else 0.0
        own = simulated * method.models_per_virtual_client
        held[str(method)] = asked * per_reply + own
    held["leave-one-out = true"] = asked if config.leave_one_out else 0  # until the round's end
    held["downlink = 'changes'"] = simulated if config.downlink == "changes" else 0
    need, limit = _PROGRAM + model_bytes * (_MODELS + sum(held.values())), memory_limit()
    if limit and need > limit:
        costly = max(held, key=lambda name: held[name])
        raise ConfigError(
            f"{costly if held[costly] else 'model'}: with {asked} clients per round and a model of "
            f"{model_bytes / 2**20:.0f} MB the server needs about {need / _GB:.1f} GB of memory, "
            f"and has {limit / _GB:.1f} GB: give it more, ask fewer clients, or choose another"
        )


def memory_limit() -> int:
    """Return the bytes that this process may use: its container's, or all; 0 if nobody says."""
    limits = []
    if "SC_PHYS_PAGES" in getattr(os, "sysconf_names", {}):
        limits.append(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    for file in map(Path, _LIMITS):
        if file.is_file() and (text := file.read_text(encoding="ascii").strip()).isdecimal():
            limits.append(int(text))
    return min(limits, default=0)
