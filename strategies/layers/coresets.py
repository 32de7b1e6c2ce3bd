"""On what: clients train on coresets, chosen by the gradients that the server sends."""

from collections.abc import Callable, Iterable
from itertools import zip_longest
from time import perf_counter
from typing import Any

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Message
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Strategy
from numpy.typing import NDArray
from torch import nn

from ...core.config import RunConfig
from ...core.entropy import protective
from ...core.learning.gradients import rows_and_rivals, sample_rows, server_targets
from ...core.learning.model_arrays import chosen_device
from ...core.log.events import CoresetsUsed
from ...core.methods.base import Method
from ...core.methods.catalogue import methods
from ...core.methods.coreset import CoresetMethod, CoresetSettings
from ...core.tasks import Samples, load_task
from ...core.wire.arrays import from_record, record_bytes, to_record
from ...core.wire.keys import CORESET, NUM_EXAMPLES, TARGETS
from ...core.wire.replies import Replies, Row
from ...core.wire.requests import Requests
from ...core.wire.schemas import BadReply, CoresetTold
from ...selectors.data_selectors.doubt import held_out_evidence, standards
from ...selectors.data_selectors.noisy_means import noisy_means
from ...selectors.data_selectors.trust import label_evidence
from ..server_samples import validation_data
from .base import Layer, Outcome

Targets = Callable[[ArrayRecord], ArrayRecord]


class Coresets(Layer):
    """Send target gradients to the clients that choose a coreset now, and read the replies.

    A client chooses if it has never chosen, if its coreset is ``every`` rounds old by its last
    report, or if it reported that it has none (its data changed, or its state was lost). With rules
    that match no gradient of the server, clients choose by themselves, and this layer only reads
    their reports. ``targets`` returns the gradients to match at a model; it is called only if a
    client needs them. Before the first choice, clients train on a random subset for ``first_round``
    rounds.
    """

    remembers = ("_chosen", "_labels")
    own_records = (CORESET,)

    def __init__(
        self,
        inner: Strategy,
        *,
        targets: Targets | None = None,
        every: int = 10,
        first_round: int = 1,
        num_classes: int = 0,
    ) -> None:
        super().__init__(inner)
        self.targets = targets
        self.every = every
        self.first_round = first_round
        self.num_classes = num_classes
        self._chosen: dict[str, int] = {}  # round of each client's coreset, 0 for none
        self._labels: dict[str, list[int]] = {}  # of each client's coreset, if reported
        self._bytes, self._seconds = 0, 0.0  # of this round's targets
        self._told: list[CoresetTold] = []  # in this round

    @classmethod
    def of_run(cls, inner: Strategy, config: RunConfig) -> "Coresets":
        """Return the layer that a config describes; an error if the task cannot have it."""
        method = methods("data-selector")[config.data_selector]
        guided = "server data" in method.needs_in(config)
        settings, task = config[CoresetSettings], load_task(config.task_spec())
        first = method.first_round_of(settings) if isinstance(method, CoresetMethod) else 0
        layer = cls(
            inner,
            every=settings.every,
            first_round=first,
            num_classes=task.problem.num_strata(task.num_classes),
        )
        if guided:
            rng = protective(layer.federation.simulated, config.seed, 13)
            layer.targets = _targets(config, method, rng)
        return layer

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Add the targets to the messages of those who need them."""
        messages = super().configure_train(server_round, arrays, config, grid)
        requests = Requests.of(messages)
        self._bytes, self._seconds = 0, 0.0
        if requests is None:
            return []
        if self.targets is None or server_round <= self.first_round:
            return requests
        keys = self.federation.keys(requests.nodes)
        chosen = [self._chosen.get(key, 0) for key in keys]
        due = [i for i, last in enumerate(chosen) if not last or server_round - last >= self.every]
        if due:
            started = perf_counter()
            record = self.targets(arrays)
            self._seconds = perf_counter() - started
            self._bytes = len(due) * record_bytes(record)
            requests.put(TARGETS, record, due)
        return requests

    def aggregate_train(self, server_round: int, replies: Iterable[Message]) -> Outcome:
        """Aggregate, and log what clients trained on."""
        self._told = []
        try:
            return super().aggregate_train(server_round, replies)
        finally:
            self.federation.note(self._used(server_round, self._told))

    def take(self, server_round: int, replies: Replies) -> Replies:
        """Take out the reports on coresets; clients without one train on all data."""

        def read(row: Row) -> None:
            said = row.config(CORESET)
            if said is None and not self.federation.roster.can_answer(row.node, CORESET):
                size = int(row.metrics[NUM_EXAMPLES])  # which was checked
                said = {"round": 0, "size": size, "seconds": 0.0}
            told = CoresetTold.read(said, "coreset")
            if told.round > server_round:
                raise BadReply(f"a coreset of round {told.round}, in round {server_round}")
            if len(told.labels) > self.num_classes:
                raise BadReply(f"samples of {len(told.labels)} classes, not {self.num_classes}")
            key = self.federation.key(row.node)
            self._told.append(told)
            self._chosen[key] = told.round
            if told.labels:
                self._labels[key] = told.labels

        sound = self.federation.read_rows(server_round, replies, read)
        sound.take(CORESET)
        return sound

    def _used(self, server_round: int, told: list[CoresetTold]) -> CoresetsUsed:
        known = [t for t in told if t.clean is not None]
        samples = sum(t.size for t in known)
        clean = sum(t.size * t.clean for t in known if t.clean is not None)
        return CoresetsUsed(
            round=server_round,
            chose=sum(t.round == server_round for t in told),
            without=sum(t.round == 0 for t in told),
            sizes=[t.size for t in told],
            samples={
                "new": sum(t.size for t in told if t.round == server_round),
                "kept": sum(t.size for t in told if 0 < t.round < server_round),
                "random": sum(t.size for t in told if t.round == 0),
            },
            labels=[sum(counts) for counts in zip_longest(*self._labels.values(), fillvalue=0)],
            clean_share=clean / samples if samples else None,
            seconds=sum(t.seconds for t in told),
            server_seconds=self._seconds,
            guidance_bytes=self._bytes,
        )


def _targets(config: RunConfig, method: Method, rng: np.random.Generator) -> Targets:
    """Return a function that computes the gradients of the server's validation set."""
    data = validation_data(config, str(method))
    task = load_task(config.task_spec())
    model, num_classes = task.build_model().to(chosen_device(config.device)), task.num_classes
    assert isinstance(method, CoresetMethod)
    settings = config[CoresetSettings]
    rule, per_class = method.rule, method.per_class_of(settings)

    def at(arrays: ArrayRecord) -> ArrayRecord:
        model_arrays = from_record(arrays)
        if not settings.noise_multiplier:
            means = server_targets(model, model_arrays, data, per_class, task.problem)
            if rule != "trusted":
                return to_record({"means": means})
            standard = _standards(model, model_arrays, data, means)
            return to_record({"means": means, "standards": standard.astype(np.float32)})
        rows = sample_rows(model, model_arrays, data, rule, per_class, task.problem)
        strata = task.problem.strata(data.y.numpy())
        labels, classes = (strata, num_classes) if per_class else (0 * strata, 1)
        noise = settings.clip, settings.noise_multiplier
        noisy = noisy_means(rows, labels, classes, *noise, rng).astype(np.float32)
        return to_record({"means": noisy if per_class else noisy.reshape(num_classes, -1)})

    return at


def _standards(
    model: nn.Module, arrays: dict[str, NDArray[Any]], data: Samples, means: NDArray[Any]
) -> NDArray[np.float64]:
    """Return how often the tests doubt right and wrong labels of the server's samples."""
    labels, classes = data.y.numpy(), len(means)
    rows, rivals = rows_and_rivals(model, arrays, data)
    evidence = held_out_evidence(rows, labels, rivals, classes)
    wrong = (labels + 1 + np.arange(len(labels)) % max(1, classes - 1)) % classes
    rows, rivals = rows_and_rivals(model, arrays, data, wrong)
    against = label_evidence(rows, wrong, means, rivals)
    return standards(evidence, labels, classes, (against, wrong) if classes > 1 else None)
