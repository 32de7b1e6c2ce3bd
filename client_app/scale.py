"""What inputs are scaled by comes with every message of a run that scales.

It takes the place of the setting ``data.scale`` before a handler reads the config, so that nothing
else on a client needs to know.
"""

import copy
from collections.abc import Sequence

from flwr.app import ConfigRecord, Context, Message

from ..core.wire.keys import CONFIG, SCALE
from ..core.wire.records import entries, record_at
from ..core.wire.tables import Requests


def with_scale(messages: Sequence[Message], contexts: Sequence[Context]) -> Sequence[Context]:
    """Return contexts whose run config has the numbers that inputs are scaled by, if any came."""
    if isinstance(messages, Requests):
        record = messages.record(CONFIG, 0)
    else:
        record = record_at(messages[0].content, CONFIG, ConfigRecord)
    scale = None if record is None else entries(record).get(SCALE)
    if not scale:
        return contexts
    from ..core.config.reading import SharedConfig  # most messages do not need it

    shared = SharedConfig({**contexts[0].run_config, "data.scale": scale})
    scaled = []
    for context in contexts:
        own = copy.copy(context)  # the state stays the same object
        own.run_config = shared
        scaled.append(own)
    return scaled
