"""On what: once labels are found to be wrong, samples count as far as the model confirms them."""

from collections.abc import Callable, Iterable

from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Strategy

from ...core.config import RunConfig
from ...core.learning.evaluation import predictions_of_all
from ...core.learning.model_arrays import chosen_device
from ...core.log.events import Decided
from ...core.tasks import load_task
from ...core.wire.arrays import from_record
from ...core.wire.keys import AGREEMENT, DOUBT
from ...core.wire.replies import Replies
from ...selectors.data_selectors.confirmed_labels import LabelDoubt, sharpness, sure_accuracy
from .base import Layer


class ConfirmedLabels(Layer):
    """Compare how often the model agrees with clients' labels and with the server's clean ones."""

    remembers = ("doubt",)

    def __init__(
        self, inner: Strategy, clean_accuracy: Callable[[ArrayRecord], float] | None = None
    ) -> None:
        super().__init__(inner)
        self.clean_accuracy = clean_accuracy
        self.doubt = LabelDoubt()
        self._accuracy = 0.0  # of the model that this round began with
        self._shares: list[float] = []  # of this round's clients

    @classmethod
    def of_run(cls, inner: Strategy, config: RunConfig) -> "ConfirmedLabels":
        """Return the layer that a config describes."""
        return cls(inner, clean_accuracy_of(config))

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Tell clients to look at their labels, and whether to weigh their samples."""
        if self.clean_accuracy is not None:
            self._accuracy = self.clean_accuracy(arrays)
            config[DOUBT] = sharpness(self._accuracy) if self.doubt.found else 0.0
        return super().configure_train(server_round, arrays, config, grid)

    def take(self, server_round: int, replies: Replies) -> Replies:
        """Take out how often the model agrees with clients' labels."""
        column = replies.take_metric(AGREEMENT) or []
        self._shares += [s for s in column if isinstance(s, float) and 0 <= s <= 1]
        return replies

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Aggregate, then judge by what clients of the round said."""
        self._shares = []
        result = super().aggregate_train(server_round, replies)
        if not self.doubt.found and self.doubt.hear(self._shares, self._accuracy):
            self.federation.note(
                Decided(
                    round=server_round,
                    part="labels",
                    seen=f"the model agrees with the labels of clients {1 - self.doubt.wrong:.0%}"
                    f" as often as with clean ones: some {self.doubt.wrong:.0%} are wrong",
                    decision="samples count by how well the running predictions confirm them",
                )
            )
        return result


def clean_accuracy_of(config: RunConfig) -> Callable[[ArrayRecord], float] | None:
    """Return what finds a model's accuracy on the server's clean samples; None without any."""
    task = load_task(config.task_spec())
    clean = task.server_data().validation
    if not len(clean) or not task.problem.has_classes:
        return None
    model = task.build_model().to(chosen_device(config.device))
    labels = clean.y.numpy()
    return lambda arrays: sure_accuracy(
        predictions_of_all(model, [from_record(arrays)], [clean])[0].argmax(axis=1), labels
    )
