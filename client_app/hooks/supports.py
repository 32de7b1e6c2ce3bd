"""Which parameters matter most to a client: it tells the server their indices, never a value.

Index-Overlap Similarity, sections 3.1 to 3.3: after local training the client estimates the
diagonal of the Fisher information, averages it over rounds, and sends the indices of the largest,
or a signature of these. Where it sends signatures, the server may ask for the indices themselves.
"""

import math
from collections.abc import Sequence

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
from ...core.methods.catalogue import methods
from ...core.methods.ios import Ios
from ...core.wire.keys import METRICS, NUM_EXAMPLES, PAYLOAD, SIGNATURE, SUPPORT
from ...core.wire.records import filled, records_of, replies_to
from ...core.wire.signatures import encode_signature
from ...core.wire.supports import encode_support, model_tag
from ...selectors.similarities.importance_average import ImportanceAverage
from ...selectors.similarities.index_overlap import choose_k, top_k_support
from ...selectors.similarities.signatures import Hashing
from ..identity import client_config, client_task, reply_header
from ..request import ClientHook, ClientRequest, client_requests, hooks_of
from ..training import prepare, trainer_of

_SECTION = "importance"

Floats = NDArray[np.float32]
Indices = NDArray[np.int64]


class ImportantIndices(ClientHook):
    """Send the support of the client's importance, or its signature, with every training reply.

    A client to which nothing matters (its loss is exactly 0) has no support, and sends none.
    """

    def __init__(self, config: RunConfig) -> None:
        self.settings = config[Ios]
        cohorts = methods("cohorts")[config.cohorts]  # does anything there read signatures?
        self.signs = config[Ios].signatures and "signatures" in cohorts.reads

    def after(self, request: ClientRequest, job: Job, outcome: Outcome) -> Outcome:
        """Bring the average importance up to date and tell its largest indices."""
        if request.support is None:  # else another part has done so
            request.support = self._support(self._averaged(request, job, outcome), request)
        self.tell(request, request.support)
        return outcome

    def tell(self, request: ClientRequest, indices: Indices, *, in_full: bool = False) -> None:
        """Add the indices, or their signature, to the reply."""
        if not indices.size:
            return
        shapes = trainable_shapes(trainer_of(request.config).model)
        size, tag = sum(math.prod(shape) for shape in shapes.values()), model_tag(shapes)
        record = request.reply.setdefault(SUPPORT, ConfigRecord())
        assert isinstance(record, ConfigRecord)
        if self.signs and not in_full:
            signature = Hashing(self.settings.hashes, seed=request.config.seed).sign(indices)
            record[SIGNATURE] = encode_signature(signature, indices.size, size, tag)
        else:
            record[PAYLOAD] = encode_support(indices, size, tag)

    def held(self, request: ClientRequest) -> Indices:
        """Return the support that the client told last, of what it remembers."""
        average = ImportanceAverage(self.settings.ema)
        if _SECTION not in request.state:
            raise ValueError(f"client {request.key!r} has not trained yet: it holds no support")
        average.load_state_dict(request.state[_SECTION])
        return self._support(average.value, request)

    def _averaged(self, request: ClientRequest, job: Job, outcome: Outcome) -> Floats:
        average = ImportanceAverage(self.settings.ema)
        if _SECTION in request.state:
            average.load_state_dict(request.state[_SECTION])
        importance = average.update(self._importance(request, job, outcome))
        request.state[_SECTION] = average.state_dict()
        return importance

    def _support(self, importance: Floats, request: ClientRequest) -> Indices:
        if not importance.any():
            return np.empty(0, dtype=np.int64)
        model = trainer_of(request.config).model
        layers = (math.prod(shape) for shape in trainable_shapes(model).values())
        sizes = list(layers) if self.settings.per_layer else None
        return top_k_support(importance, self._count(importance), sizes)

    def _importance(self, request: ClientRequest, job: Job, outcome: Outcome) -> Floats:
        model = trainer_of(request.config).model
        load_arrays(model, outcome.arrays)
        model.eval()
        x, y = job.data.x, job.data.y
        if 0 < self.settings.samples < len(job.data):  # by lot: files are often sorted by class
            drawn = np.random.default_rng(job.seed).permutation(len(job.data))
            places = torch.from_numpy(np.sort(drawn[: self.settings.samples]))
            x, y = x[places], y[places]
        return fisher_diagonal(model, request.task.problem.loss, x, y)

    def _count(self, importance: Floats) -> int:
        """Return K: a share of all parameters, or by Algorithm 1 as many as cover enough."""
        size, settings = importance.size, self.settings
        if settings.share:
            return max(1, round(settings.share * size))
        return choose_k(importance, settings.coverage, max(1, round(settings.most * size)))


class IndexSignatures(ImportantIndices):
    """Send only a MinHash signature of the support: enough to tell who overlaps with whom."""

    def __init__(self, config: RunConfig) -> None:
        super().__init__(config)
        self.signs = True


def answer_supports(messages: Sequence[Message], contexts: Sequence[Context]) -> list[Message]:
    """Tell only the support: after training as in a round, or without a model the last one told."""
    config = client_config(contexts[0])
    clients = client_requests(messages, contexts, client_task(contexts[0]))
    # First of all: a device knows the model's shape from nothing but its own data.
    examples = [len(request.data) for request in clients]
    part = ImportantIndices(config)
    if records_of(messages[0].content, ArrayRecord):
        _train_and_tell(clients, part, config)
    else:
        for request in clients:
            part.tell(request, part.held(request), in_full=True)
    contents = []
    for request, count in zip(clients, examples, strict=True):
        metrics = filled(MetricRecord, {NUM_EXAMPLES: count})
        content = reply_header(request.context) | request.reply | {METRICS: metrics}
        contents.append(filled(RecordDict, content))
        request.close()
    return replies_to(messages, contents)


def _train_and_tell(
    clients: list[ClientRequest], part: ImportantIndices, config: RunConfig
) -> None:
    prepare(clients, [other for other in hooks_of(config) if other.chooses_data])
    jobs = [request.job() for request in clients]
    settings = train_settings(config, clients[0].round)
    outcomes = trainer_of(config).train(jobs, settings, Plain(config))
    for request, job, outcome in zip(clients, jobs, outcomes, strict=True):
        part.after(request, job, outcome)
