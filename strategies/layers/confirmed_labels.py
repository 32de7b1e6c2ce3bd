"""On what: once labels are found to be wrong, samples count as far as the model confirms them."""

from collections.abc import Iterable

from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Strategy

from ...core.config import RunConfig
from ...core.log.events import Decided
from ...core.wire.arrays import from_record, to_record
from ...core.wire.keys import AGREEMENT, BLEND, DOUBT, NUM_EXAMPLES
from ...core.wire.replies import Replies
from ...selectors.data_selectors.confirmed_labels import FITTED, MANY, LabelDoubt, sharpness
from ..server_samples import Arrays, ServerSamples
from .base import Layer


class ConfirmedLabels(Layer):
    """Compare how often the model agrees with clients' labels and with the server's clean ones.

    Once it finds wrong labels, clients weight their samples, and blend them where many are wrong
    and the model fits. The server trains on its clean samples, too: as one more client, which
    continues from the aggregated model. The new model is the mean of both, weighted by the worth of
    their samples. If a share w of labels is wrong, a sample is worth ``(1 - w)^2`` of a clean one:
    the mean gradient is ``1 - w`` times as long, and just as noisy.
    """

    remembers = ("doubt",)

    def __init__(self, inner: Strategy, clean: ServerSamples | None = None) -> None:
        super().__init__(inner)
        self.clean = clean
        self.doubt = LabelDoubt()
        self._accuracy = 0.0  # of the model that this round began with
        self._shares: list[float] = []  # of this round's clients
        self._samples = 0.0  # of theirs

    @classmethod
    def of_run(cls, inner: Strategy, config: RunConfig) -> "ConfirmedLabels":
        """Return the layer that a config describes."""
        return cls(inner, ServerSamples.of_classes(config))

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Ask clients to check their labels, and say whether to weight their samples."""
        if self.clean is not None:
            self._accuracy = self.clean.accuracy(from_record(arrays))
            config[DOUBT] = sharpness(self._accuracy) if self.doubt.found else 0.0
            if self.doubt.found:
                config[BLEND] = self.doubt.wrong >= MANY and self._accuracy >= FITTED
        return super().configure_train(server_round, arrays, config, grid)

    def take(self, server_round: int, replies: Replies) -> Replies:
        """Take out how often the model agrees with clients' labels; count their samples."""
        column = replies.take_metric(AGREEMENT) or []
        self._shares += [s for s in column if isinstance(s, float) and 0 <= s <= 1]
        self._samples += sum(replies.metrics[NUM_EXAMPLES])
        return replies

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Aggregate, then test for wrong labels by the reports of the round."""
        self._shares, self._samples = [], 0.0
        arrays, metrics = super().aggregate_train(server_round, replies)
        if arrays is not None and self.clean is not None and self.doubt.found:
            arrays = self._with_clean_samples(self.clean, from_record(arrays), server_round)
        if not self.doubt.found and self.doubt.hear(self._shares, self._accuracy):
            self.federation.note(
                Decided(
                    round=server_round,
                    part="labels",
                    seen=f"the model agrees with the labels of clients {1 - self.doubt.wrong:.0%}"
                    f" as often as with clean ones: about {self.doubt.wrong:.0%} are wrong",
                    decision="samples count by how well the running predictions confirm them, and"
                    " the server's clean samples train too",
                )
            )
        return arrays, metrics

    def _with_clean_samples(
        self, clean: ServerSamples, arrays: Arrays, server_round: int
    ) -> ArrayRecord:
        """Return the model after the server has trained as one more client."""
        after = clean.trained(arrays, server_round).arrays
        share = len(clean) / (len(clean) + self._samples * (1 - self.doubt.wrong) ** 2)
        floats = {name: a for name, a in arrays.items() if a.dtype.kind == "f"}
        moved = {n: (a + share * (after[n] - a)).astype(a.dtype) for n, a in floats.items()}
        return to_record({**arrays, **moved})
