"""Keep the best model of a run beside its last."""

import json
import logging
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from flwr.app import ArrayRecord
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from ...core.storage.files import write_atomically
from ...core.tasks.metrics import ACCURACY, Metric, label, written
from ...core.tasks.scaling import scaling_of
from ...core.wire.arrays import from_record
from ..loop import Loop
from ..run_folder import RunFolder
from .base import Callback

_log = logging.getLogger("forager")
Frozen = Callable[[], dict[str, NDArray[Any]]]


class BestModel(Callback):
    """Leave ``best.safetensors`` behind: the model of the round whose main metric was best.

    With cohorts, each one's is beside it, and what clients reach on their own data decides.
    """

    remembers = ("round", "value")

    def __init__(
        self,
        folder: RunFolder,
        *,
        every: int = 1,
        metric: Metric = ACCURACY,
        on_clients: bool = False,
        frozen: Frozen = dict,
    ) -> None:
        self.folder, self.every, self.metric = folder, every, metric
        self.on_clients, self.frozen = on_clients, frozen
        self.round = -1
        self.value: float | None = None
        self._unwritten: dict[str, ArrayRecord] = {}

    def on_run_start(self, loop: Loop) -> None:
        """Forget a best whose model is not there any more, or of a round to be played again."""
        if self.round != _round_in(self.folder):
            self.round, self.value = -1, None
            self._drop()

    def on_roll_back(self, loop: Loop) -> None:
        """Forget what was best of rounds that failed."""
        self._unwritten = {}
        self.on_run_start(loop)

    def on_round_end(self, loop: Loop) -> None:
        """Look at the newest value, and keep the model if it is the best."""
        value = loop.own_score if self.on_clients else loop.score
        known = self.value
        better = value is not None and (known is None or self.metric.gain(value, over=known) > 0)
        if better and loop.evaluated_round == loop.round:
            self.round, self.value = loop.round, value
            models = loop.strategy.models(loop.arrays)
            own = {name: arrays for name, (arrays, _) in models.items()} if len(models) > 1 else {}
            self._unwritten = {"": loop.arrays, **own}
        if self.every and loop.round % self.every == 0:
            self._write(loop)

    def on_run_end(self, loop: Loop) -> None:
        """Write what is not written yet; say where the best is, if the last round was not."""
        self._write(loop)
        if 0 <= self.round < loop.round:
            told = f"{label(self.metric)} {written(self.metric, self.value)}"
            _log.info("best: %s in round %d (best.safetensors)", told, self.round)

    def _write(self, loop: Loop) -> None:
        if not self._unwritten:
            return
        self.folder.check_lease()
        found = {"round": self.round, "metric": self.metric.name, "value": self.value}
        try:
            for name, arrays in self._unwritten.items():
                write_model(
                    *(self.folder.best_path(name), {**self.frozen(), **from_record(arrays)}),
                    about={"best": found | input_scale(loop.federation.scale)},
                )
        except OSError as error:  # a full disk may not end the run
            _log.warning("the best model is not saved yet: %s; it is tried again", error)
            return
        self._drop(but=self._unwritten)  # cohorts that are gone
        self._unwritten = {}

    def _drop(self, but: Iterable[str] = ()) -> None:
        stay = {self.folder.best_path(name) for name in but}
        for path in {*self.folder.path.glob("best*.safetensors")} - stay:
            path.unlink(missing_ok=True)


def write_model(path: Path, arrays: dict[str, NDArray[Any]], about: Mapping[str, Any]) -> None:
    """Write arrays as safetensors; ``about`` has at most one entry: several come in any order."""
    metadata = {name: json.dumps(value) for name, value in about.items()}
    write_atomically(path, save(arrays, metadata=metadata or None))


def input_scale(text: str) -> dict[str, Any]:
    """Return what must be done to inputs before a model sees them; nothing if nothing."""
    scaling = scaling_of(text)
    if scaling is None:
        return {}
    return {"input-scale": {"mean": scaling.mean.tolist(), "spread": scaling.spread.tolist()}}


def _round_in(folder: RunFolder) -> int:
    """Return the round of the best model that a folder holds; -1 if it holds none."""
    try:
        with safe_open(folder.best_path(), "numpy") as file:
            return int(json.loads(file.metadata()["best"])["round"])
    except (OSError, SafetensorError, KeyError, ValueError, TypeError):
        return -1
