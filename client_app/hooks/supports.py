"""Which parameters matter most to a client: it sends the server their indices, never a value.

Index-Overlap Similarity, sections 3.1 to 3.3: the client estimates the diagonal of the Fisher
information, averages it over rounds, and sends the indices of the largest, or a signature of these.
Where it sends signatures, the server may ask for the indices themselves.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from flwr.app import ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from numpy.typing import NDArray

from ...core.config import RunConfig
from ...core.learning.fisher import fisher_diagonal, trainable_shapes
from ...core.learning.job import Job, Outcome
from ...core.learning.model_arrays import load_arrays
from ...core.learning.objectives.plain import Plain
from ...core.learning.train_settings import train_settings
from ...core.methods.base import load
from ...core.methods.catalogue import methods
from ...core.methods.ios import Ios
from ...core.wire.keys import METRICS, NUM_EXAMPLES, PAYLOAD, SIGNATURE, SUPPORT
from ...core.wire.records import filled, records_of, replies_to
from ...core.wire.signatures import encode_signature
from ...core.wire.supports import encode_support, model_tag
from ...selectors.similarities.importance_average import ImportanceAverage
from ...selectors.similarities.index_overlap import choose_k, top_k_support
from ...selectors.similarities.signatures import Hashing, Signature
from ..handlers.training import prepare, trainer_of
from ..identity import client_config, client_task, reply_header
from ..request import ClientHook, ClientRequest, client_requests, hooks_of

_SECTION = "importance"
_SHARE = 0.05  # of the parameters, in a support
_FEWEST = 200  # indices: the overlap of fewer is mostly noise

Arrays = Mapping[str, NDArray[Any]]
Floats = NDArray[np.float32]
Indices = NDArray[np.int64]


class SupportTeller(ClientHook):
    """Send a support, or its signature, with every training reply.

    A client that has no support, because nothing matters to it, sends none.
    """

    trains = True  # whether the support is known only after local training
    passes = 0  # over the client's samples, besides local training

    def __init__(self, config: RunConfig) -> None:
        self.settings = config[Ios]
        cohorts = methods("cohorts")[config.cohorts]  # does anything there read signatures?
        signs = config[Ios].signatures and "signatures" in cohorts.reads
        self.form = SIGNATURE if signs else PAYLOAD

    def find(self, request: ClientRequest, job: Job, trained: Arrays) -> Indices:
        """Return the support, empty if there is none, and remember what is needed for it."""
        raise NotImplementedError

    def held(self, request: ClientRequest) -> Indices:
        """Return the support that the client sent last, of what it remembers."""
        raise NotImplementedError

    def encoded(self, support: Indices, size: int, tag: int) -> bytes:
        """Return what is sent of a support of the model with this size and tag."""
        return encode_support(support, size, tag)

    def signature(self, hashing: Hashing, support: Indices) -> Signature:
        """Return the signature of a support."""
        return hashing.sign(support)

    def after(self, request: ClientRequest, job: Job, outcome: Outcome) -> Outcome:
        """Find the support and send it as the run says."""
        self.tell(request, self.support(request, job, outcome.arrays), self.form)
        return outcome

    def support(self, request: ClientRequest, job: Job, trained: Arrays) -> Indices:
        """Return the support, found once even if two parts want it."""
        if request.support is None:
            request.support = self.find(request, job, trained)
        return request.support

    def tell(self, request: ClientRequest, support: Indices, form: str) -> None:
        """Add a support, or its signature, to the reply."""
        if not support.size:
            return
        shapes = trainable_shapes(trainer_of(request.config).model)
        size, tag = sum(math.prod(shape) for shape in shapes.values()), model_tag(shapes)
        record = request.reply.setdefault(SUPPORT, ConfigRecord())
        assert isinstance(record, ConfigRecord)
        if form == SIGNATURE:
            hashing = Hashing(self.settings.hashes, seed=request.config.seed)
            signature = self.signature(hashing, support)
            record[SIGNATURE] = encode_signature(signature, support.size, size, tag)
        else:
            record[PAYLOAD] = self.encoded(support, size, tag)

    def count(self, importance: Floats) -> int:
        """Return K: the share of all parameters that is set, or the usual number."""
        if self.settings.share:
            return max(1, round(self.settings.share * importance.size))
        return self.usual(importance, max(1, round(self.settings.most * importance.size)))

    def usual(self, importance: Floats, most: int) -> int:
        """Return K where no share is set: one in twenty, and enough to compare small models by."""
        return max(round(_SHARE * importance.size), min(_FEWEST, most))

    def layers(self, request: ClientRequest) -> list[int] | None:
        """Return the sizes of the layers, if the support is to be filled layer by layer."""
        shapes = trainable_shapes(trainer_of(request.config).model)
        sizes = [math.prod(shape) for shape in shapes.values()]
        return sizes if self.settings.per_layer else None


class ImportantIndices(SupportTeller):
    """The indices of the parameters with the largest average importance.

    Importance is measured at the model that the client received, where all clients stand at the
    same point, or after its training, where its own samples have small gradients by then.
    """

    passes = 1

    def __init__(self, config: RunConfig) -> None:
        super().__init__(config)
        self.trains = config[Ios].at == "trained"

    def find(self, request: ClientRequest, job: Job, trained: Arrays) -> Indices:
        """Bring the average importance up to date and return its largest indices."""
        average = ImportanceAverage(self.settings.ema)
        if _SECTION in request.state:
            average.load_state_dict(request.state[_SECTION])
        measured = self._importance(request, job, trained if self.trains else job.arrays)
        importance = average.update(measured)
        request.state[_SECTION] = average.state_dict()
        return self._largest(importance, request)

    def held(self, request: ClientRequest) -> Indices:
        """Return the support that the client sent last."""
        average = ImportanceAverage(self.settings.ema)
        if _SECTION not in request.state:
            raise ValueError(f"client {request.key!r} has not trained yet: it holds no support")
        average.load_state_dict(request.state[_SECTION])
        return self._largest(average.value, request)

    def _largest(self, importance: Floats, request: ClientRequest) -> Indices:
        if not importance.any():
            return np.empty(0, dtype=np.int64)
        return top_k_support(importance, self.count(importance), self.layers(request))

    def _importance(self, request: ClientRequest, job: Job, arrays: Arrays) -> Floats:
        model = trainer_of(request.config).model
        load_arrays(model, arrays)
        model.eval()
        x, y = job.data.x, job.data.y
        if 0 < self.settings.samples < len(job.data):  # at random: files are often sorted by class
            drawn = np.random.default_rng(job.seed).permutation(len(job.data))
            places = torch.from_numpy(np.sort(drawn[: self.settings.samples]))
            x, y = x[places], y[places]
        return fisher_diagonal(model, request.task.problem.loss, x, y)


class PaperIndices(ImportantIndices):
    """As the paper has it: importance after local training, K by Algorithm 1."""

    def __init__(self, config: RunConfig) -> None:
        super().__init__(config)
        self.trains = True

    def usual(self, importance: Floats, most: int) -> int:
        """Return as many as cover enough of the importance."""
        return choose_k(importance, self.settings.coverage, most)


class IndexSignatures(ClientHook):
    """Send only a MinHash signature of the support: enough to see who overlaps with whom.

    Of the supports that clients are compared by, where the run does so.
    """

    kind: type[SupportTeller] = ImportantIndices

    def __init__(self, config: RunConfig) -> None:
        hook = methods("similarity")[config.similarity].hook
        self.teller: SupportTeller = load(hook)(config) if hook else self.kind(config)

    def after(self, request: ClientRequest, job: Job, outcome: Outcome) -> Outcome:
        """Find the support and send its signature."""
        support = self.teller.support(request, job, outcome.arrays)
        self.teller.tell(request, support, SIGNATURE)
        return outcome


def answer_supports(messages: Sequence[Message], contexts: Sequence[Context]) -> list[Message]:
    """Send only the support: of the received model, or without one the last support sent."""
    config = client_config(contexts[0])
    clients = client_requests(messages, contexts, client_task(contexts[0]))
    # First of all: a device knows the model's shape from nothing but its own data.
    examples = [len(request.data) for request in clients]
    part = load(methods("similarity")[config.similarity].hook)(config)
    if records_of(messages[0].content, ArrayRecord):
        _find_and_tell(clients, part, config)
    else:
        for request in clients:
            part.tell(request, part.held(request), PAYLOAD)
    contents = []
    for request, count in zip(clients, examples, strict=True):
        metrics = filled(MetricRecord, {NUM_EXAMPLES: count})
        content = reply_header(request.context) | request.reply | {METRICS: metrics}
        contents.append(filled(RecordDict, content))
        request.close()
    return replies_to(messages, contents)


def _find_and_tell(clients: list[ClientRequest], part: SupportTeller, config: RunConfig) -> None:
    """Find supports as in a round, training first only where that is needed."""
    prepare(clients, [other for other in hooks_of(config) if other.chooses_data])
    jobs = [request.job() for request in clients]
    models: list[Arrays] = [job.arrays for job in jobs]
    if part.trains:
        settings = train_settings(config, clients[0].round)
        outcomes = trainer_of(config).train(jobs, settings, Plain(config))
        models = [outcome.arrays for outcome in outcomes]
    for request, job, arrays in zip(clients, jobs, models, strict=True):
        part.tell(request, part.support(request, job, arrays), part.form)
