"""Handler of ``query.support``: which parameters matter most to each client."""

from flwr.app import ArrayRecord

from ...core.learning.train_settings import train_settings
from ...core.methods.base import load
from ...core.methods.catalogue import methods
from ...core.wire.keys import NUM_EXAMPLES, PAYLOAD
from ...core.wire.replies import Replies
from ..batch import ClientBatch
from ..hooks.supports import SupportTeller


def answer_supports(batch: ClientBatch) -> Replies:
    """Send only the support: of the received model, or without one the last support sent."""
    # First of all: a device knows the model's shape from nothing but its own data.
    examples = list(map(len, batch.data))
    hook = methods("similarity")[batch.config.similarity].hook
    teller: SupportTeller = load(hook)(batch.config)
    if any(type(record) is ArrayRecord for record in batch.requests.content(0).values()):
        jobs = batch.prepare(only="chooses_data").jobs()  # as in a round
        settings = teller.training(train_settings(batch.config, batch.round))
        outcomes = batch.side.train_plainly(jobs, settings) if teller.trains else None
        batch.squares = outcomes.squares if outcomes is not None else None
        teller.tell(batch, teller.supports(batch, outcomes), teller.form)
    else:
        teller.tell(batch, teller.held(batch), PAYLOAD)
    batch.close()
    return batch.replies({NUM_EXAMPLES: examples})
