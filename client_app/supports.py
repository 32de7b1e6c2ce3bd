"""Which parameters matter most to a client: it tells the server their indices, never a value.

Index-Overlap Similarity, sections 3.1 to 3.3: after local training the client estimates the
diagonal of the Fisher information, averages it over rounds, and sends the indices of the largest.
"""

import math
from collections.abc import Sequence

import numpy as np
from flwr.app import ConfigRecord, Context, Message, MetricRecord, RecordDict
from numpy.typing import NDArray
from torch.nn import functional

from client_app.fisher import fisher_diagonal
from client_app.identity import client_config, client_task, signed
from client_app.job import Job, Outcome
from client_app.objectives.plain import Plain
from client_app.settings import train_settings
from client_app.trainer import load_arrays
from client_app.training import prepare, trainer_of
from client_app.visit import Part, Visit, parts_of, visits
from server_app.config import RunConfig
from similarities.importance_average import ImportanceAverage
from similarities.index_overlap import choose_k, top_k_support
from similarities.signatures import Hashing
from wire.keys import METRICS, NUM_EXAMPLES, PAYLOAD, SIGNATURE, SUPPORT
from wire.records import filled, replies_to
from wire.supports import encode_support, model_tag

_SECTION = "importance"

Floats = NDArray[np.float32]


class ImportantIndices(Part):
    """Send the support of the client's importance with every training reply."""

    def __init__(self, config: RunConfig) -> None:
        self.settings = config.ios

    def after(self, visit: Visit, job: Job, outcome: Outcome) -> Outcome:
        """Bring the average importance up to date and send its largest indices."""
        visit.reply[SUPPORT] = ConfigRecord({PAYLOAD: self.support(visit, job, outcome)})
        return outcome

    def support(self, visit: Visit, job: Job, outcome: Outcome) -> bytes:
        """Return the encoded indices of the parameters that matter most to the client."""
        indices = self.indices(visit, job, outcome)
        shapes = {n: tuple(p.shape) for n, p in trainer_of(visit.config).model.named_parameters()}
        size = sum(math.prod(shape) for shape in shapes.values())
        return encode_support(indices, size, model_tag(shapes))

    def indices(self, visit: Visit, job: Job, outcome: Outcome) -> NDArray[np.int64]:
        """Return the indices of the parameters that matter most to the client."""
        average = ImportanceAverage(self.settings.ema)
        if _SECTION in visit.state:
            average.load_state_dict(visit.state[_SECTION])
        importance = average.update(self._importance(visit, job, outcome))
        visit.state[_SECTION] = average.state_dict()
        model = trainer_of(visit.config).model
        sizes = [p.numel() for p in model.parameters()] if self.settings.per_layer else None
        return top_k_support(importance, self._count(importance), sizes)

    def _importance(self, visit: Visit, job: Job, outcome: Outcome) -> Floats:
        model = trainer_of(visit.config).model
        load_arrays(model, outcome.arrays)
        model.eval()
        most = self.settings.samples or len(job.data)
        x, y = job.data.x[:most], job.data.y[:most]
        return fisher_diagonal(model, functional.cross_entropy, x, y)

    def _count(self, importance: Floats) -> int:
        """Return K: a share of all parameters, or by Algorithm 1 as many as cover enough."""
        size, settings = importance.size, self.settings
        if settings.share:
            return max(1, round(settings.share * size))
        if not importance.any():
            return 1
        return choose_k(importance, settings.coverage, max(1, round(settings.most * size)))


class SignedIndices(ImportantIndices):
    """Send only a MinHash signature of the support: enough to tell who overlaps with whom."""

    def after(self, visit: Visit, job: Job, outcome: Outcome) -> Outcome:
        """Bring the average importance up to date and send the signature of its support."""
        indices = self.indices(visit, job, outcome)
        signature = Hashing(self.settings.hashes, seed=visit.config.seed).sign(indices)
        record = visit.reply.setdefault(SUPPORT, ConfigRecord())
        record[SIGNATURE] = signature.astype(np.int64).tolist()
        return outcome


def answer_supports(messages: Sequence[Message], contexts: Sequence[Context]) -> list[Message]:
    """Train as in a round and tell only the support."""
    config = client_config(contexts[0])
    parts = [part for part in parts_of(config) if part.chooses_data]
    clients = prepare(visits(messages, contexts, client_task(contexts[0])), parts)
    jobs = [visit.job() for visit in clients]
    settings = train_settings(config, clients[0].round)
    outcomes = trainer_of(config).train(jobs, settings, Plain(config))
    part, contents = ImportantIndices(config), []
    for visit, job, outcome in zip(clients, jobs, outcomes, strict=True):
        support = ConfigRecord({PAYLOAD: part.support(visit, job, outcome)})
        metrics = filled(MetricRecord, {NUM_EXAMPLES: outcome.num_examples})
        content = signed(visit.context) | {SUPPORT: support, METRICS: metrics}
        contents.append(filled(RecordDict, content))
        visit.close()
    return replies_to(messages, contents)
