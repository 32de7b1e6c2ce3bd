"""Federations in which something is known to be wrong, or nothing: what a diagnosis must find."""

import torch

from ..core.config import Scalar, read_config
from ..core.tasks import ClientData, Split, load_task
from ..server_app.callbacks.base import Callback
from ..server_app.loop import Loop
from ..server_app.run_folder import RunFolder

Settings = dict[str, Scalar]

_IID: Settings = {"partition": "iid"}
_SKEWED: Settings = {"partition": "dirichlet", "split.alpha": 0.3}
_HERE = "forager.benchmarks.planted_cases"
# What was planted -> ways to plant it
CASES: dict[str, dict[str, Settings]] = {
    "plain": {"iid": _IID},
    "skewed": {
        "Dirichlet 0.3": _SKEWED,
        "two classes each": {"partition": "pathological", "split.classes-per-client": 2},
    },
    "grouped": {
        "turned images": {**_IID, "groups.kind": "rotation"},
        "permuted labels": {**_IID, "groups.kind": "label-permutation"},
    },
    "noisy": {
        "40 % of all labels": {**_IID, "noise": "closed-set", "corruption.rate": 0.4},
        "a quarter of the clients": {**_IID, "corruption.clients": 0.25},
    },
    "drifting": {
        "labels move on": {**_IID, "callbacks": f"{_HERE}:LabelsMoveOn"},
        "classes move on": {**_SKEWED, "callbacks": f"{_HERE}:ClassesMoveOn"},
    },
    "slow": {"devices differ": {**_IID, "devices.slow": True, "devices.spread": 1.0}},
}


class _Drift(Callback):
    """Half of the clients hold other data after half of the rounds."""

    def __init__(self, folder: RunFolder) -> None:
        pass

    def on_run_start(self, loop: Loop) -> None:
        """Begin with data that no earlier run has changed."""
        load_task.cache_clear()

    def on_round_end(self, loop: Loop) -> str | None:
        """Change tensors where they are: clients are told nothing."""
        if loop.round == loop.num_rounds // 2:
            config = read_config(loop.plan.config)
            count = config.num_clients
            data = load_task(config.task_spec()).all_client_data(range(count), count)
            self.change([own for place, own in enumerate(data) if place % 2])
        return None

    def change(self, drifting: list[ClientData]) -> None:
        """Change what these clients hold."""
        raise NotImplementedError


class LabelsMoveOn(_Drift):
    """Every class gets the number of the next."""

    def change(self, drifting: list[ClientData]) -> None:
        """Change the labels."""
        last = max(int(own.train.y.max()) for own in drifting)
        for own in drifting:
            own.train.y.copy_((own.train.y + 1) % (last + 1))


class ClassesMoveOn(_Drift):
    """Every client gets samples of the next one, and so its classes."""

    def change(self, drifting: list[ClientData]) -> None:
        """Change all samples."""
        others = [Split(own.train.x.clone(), own.train.y.clone()) for own in drifting]
        for own, other in zip(drifting, others[1:] + others[:1], strict=True):
            places = torch.arange(len(own.train)) % len(other)
            own.train.x.copy_(other.x[places])
            own.train.y.copy_(other.y[places])
