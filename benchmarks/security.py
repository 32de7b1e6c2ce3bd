"""Runs on the local engine in which every fifth client is hostile.

A runner for :func:`tools.experiments.sweep.sweep` with a key of its own, ``attack``: one of
`ATTACKS`. Its rows have more columns: ``accuracy-honest``, the mean accuracy of honest clients on
their own test data, each with the model that it would use (where clients evaluate), and in the last
row ``turns-hostile``, the share of turns that attackers had.
"""

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from functools import partial

import numpy as np
from flwr.app import Message

from ..client_app import app
from ..client_app.batch import ClientBatch
from ..core.config import Scalar
from ..core.log.events import Selected, as_events
from ..core.wire.keys import LOSS, METRICS, SIMILARITY
from ..server_app.run_folder import RunFolder
from ..tools.engine.local import LocalResult, run_local
from .attacks import UPDATES, Attack, fake_affinity, is_hostile, lying_about

RUNNER = "forager.benchmarks.security:run_attacked"
ATTACKS: dict[str, Attack | None] = {
    **UPDATES,
    "lies about similarity": partial(lying_about, SIMILARITY),
    "lies about loss": partial(lying_about, LOSS),
    "fakes affinity": fake_affinity,
}


def run_attacked(overrides: dict[str, Scalar], *, quiet: bool = True) -> LocalResult:
    """Run one federated training as :func:`forager.tools.engine.local.run_local` does."""
    attack = ATTACKS[str(overrides["attack"])]
    config = {key: value for key, value in overrides.items() if key != "attack"}
    with attack() if attack else nullcontext(), _heard() as heard:
        result = run_local(config, quiet=quiet)
    events = as_events(RunFolder.open(result.folder).read_events())
    chosen = [key for event in events if isinstance(event, Selected) for key in event.chosen]
    last = dict(result.rounds[-1])
    if chosen:
        last["turns-hostile"] = sum(map(is_hostile, chosen)) / len(chosen)
    if heard:
        honest = [accuracy for key, accuracy in heard.items() if not is_hostile(key)]
        last["accuracy-honest"] = float(np.mean(honest))
    return LocalResult(result.folder, result.reason, [*result.rounds[:-1], last])


@contextmanager
def _heard() -> Iterator[dict[str, float]]:
    """Yield what clients find when they evaluate, the last answer of each."""
    honest, heard = app.HANDLERS["evaluate"], dict[str, float]()

    def handle(batch: ClientBatch) -> list[Message]:
        replies = list(honest(batch))
        for client, reply in zip(batch.keys, replies, strict=True):
            metrics = reply.content.metric_records[METRICS]
            heard[client] = float(str(metrics["accuracy"]))
        return replies

    app.HANDLERS["evaluate"] = handle
    try:
        yield heard
    finally:
        app.HANDLERS["evaluate"] = honest
