"""How alike clients are, by what they tell: indices, updates, or the truth about their labels.

Each way has the same face: what to ask clients that have not told yet, how to read a reply, and the
matrix of similarities. Only ``index-overlap`` needs no values of parameters.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord
from numpy.typing import NDArray

from server_app.config import RunConfig
from similarities.cosine import cosine_matrix
from similarities.euclidean import euclidean_matrix
from similarities.histograms import histogram_similarity
from similarities.index_overlap import overlap_matrix
from tasks import load_task
from wire.arrays import checked_arrays, flat_floats, from_record
from wire.keys import ARRAYS, ASK_SUPPORT, ASK_UPDATE, HISTOGRAM, PAYLOAD, SUMMARY, SUPPORT
from wire.records import record_at, records_of
from wire.supports import MalformedSupport, decode_support, model_tag

Matrix = NDArray[np.float64]


class Likeness:
    """What is known of each client, and how alike that makes them."""

    question = ""  # kind of message that asks a client
    values = True  # whether values of parameters or of data are needed

    def __init__(self) -> None:
        self.told: dict[str, NDArray[Any]] = {}

    def hear(self, key: str, reply: Message, sent: ArrayRecord) -> None:
        """Take what a reply tells; raise ValueError if it cannot be used."""
        raise NotImplementedError

    def matrix(self, keys: Sequence[str]) -> Matrix:
        """Return the similarities of clients that have told."""
        raise NotImplementedError

    def state_dict(self) -> dict[str, Any]:
        """Return what clients have told."""
        return {"told": self.told}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take back what :meth:`state_dict` returned."""
        self.told = dict(state["told"])


class IndexOverlap(Likeness):
    """IOS: the share of important parameters that two clients have in common.

    Parameters
    ----------
    reader : SupportReader
        Knows the model that supports must be of.
    """

    question = ASK_SUPPORT
    values = False

    def __init__(self, reader: "SupportReader") -> None:
        super().__init__()
        self.reader = reader

    def hear(self, key: str, reply: Message, sent: ArrayRecord) -> None:
        """Take the support of a client; one of another model is refused."""
        self.told[key] = self.reader.read(reply)

    def matrix(self, keys: Sequence[str]) -> Matrix:
        """Return the overlaps of all pairs."""
        return overlap_matrix([self.told[key] for key in keys])


class Cosine(Likeness):
    """The cosine of two clients' updates."""

    question = ASK_UPDATE

    def hear(self, key: str, reply: Message, sent: ArrayRecord) -> None:
        """Take the update of a client."""
        after = record_at(reply.content, ARRAYS, ArrayRecord)
        if after is None:
            raise ValueError("no model in the reply")
        self.told[key] = flat_floats(checked_arrays(after, sent)) - flat_floats(from_record(sent))

    def matrix(self, keys: Sequence[str]) -> Matrix:
        """Return the cosines of all pairs."""
        return cosine_matrix([self.told[key] for key in keys])


class Euclidean(Cosine):
    """The distance of two clients' updates, as a similarity."""

    def matrix(self, keys: Sequence[str]) -> Matrix:
        """Return the similarities of all pairs."""
        return euclidean_matrix([self.told[key] for key in keys])


class Oracle(Likeness):
    """The truth: how alike the label histograms are. Only in simulation."""

    question = SUMMARY

    def hear(self, key: str, reply: Message, sent: ArrayRecord) -> None:
        """Take the histogram, if the reply is the answer to a question for it."""
        metrics = records_of(reply.content, MetricRecord)
        if metrics and HISTOGRAM in metrics[0]:
            self.told[key] = np.asarray(metrics[0][HISTOGRAM])

    def matrix(self, keys: Sequence[str]) -> Matrix:
        """Return one minus the Jensen-Shannon divergence of all pairs."""
        return histogram_similarity([self.told[key] for key in keys])


class SupportReader:
    """Reads supports out of replies.

    Parameters
    ----------
    shapes : mapping of str to sequence of int
        Shapes of the model's parameters, in their order.
    """

    def __init__(self, shapes: Mapping[str, Sequence[int]]) -> None:
        self.size = sum(math.prod(shape) for shape in shapes.values())
        self.tag = model_tag(shapes)

    def read(self, reply: Message) -> NDArray[np.int64]:
        """Return the support in a reply; ValueError if it is missing or of another model."""
        record = record_at(reply.content, SUPPORT, ConfigRecord)
        payload = record.get(PAYLOAD) if record is not None else None
        if not isinstance(payload, bytes):
            raise MalformedSupport("no support in the reply")
        return decode_support(payload, self.size, self.tag)


def parameter_shapes(config: RunConfig) -> dict[str, tuple[int, ...]]:
    """Return the shapes of the parameters of a run's model."""
    model = load_task(config.task_spec()).build_model()
    return {name: tuple(parameter.shape) for name, parameter in model.named_parameters()}


def likeness(config: RunConfig) -> Likeness:
    """Return what a run compares clients by."""
    if config.similarity == "index-overlap":
        return IndexOverlap(SupportReader(parameter_shapes(config)))
    return {"cosine": Cosine, "euclidean": Euclidean, "oracle": Oracle}[config.similarity]()
