"""Handler of ``query.update``: the model after some steps, which count for nothing else.

FlexCFL's pretraining, FL+HC's one round with everybody.
"""

from dataclasses import replace

from ...core.learning.train_settings import train_settings
from ...core.wire.keys import ARRAYS, NUM_EXAMPLES, STEPS
from ...core.wire.replies import Replies
from ..batch import ClientBatch


def answer_updates(batch: ClientBatch) -> Replies:
    """Train for as many steps as a message says (0: as in a round) and send the model back."""
    jobs = batch.prepare(only="chooses_data").jobs()
    settings, steps = train_settings(batch.config, batch.round), int(batch.told[STEPS])
    settings = replace(settings, steps=steps) if steps else settings
    outcomes = batch.side.train_plainly(jobs, settings)
    batch.stacks[ARRAYS] = outcomes.arrays
    batch.close()
    return batch.replies({NUM_EXAMPLES: outcomes.num_examples})
