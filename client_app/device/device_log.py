"""What a device writes about each message: one line that its owner can read."""

import sys
from collections.abc import Mapping
from typing import Any

from flwr.app import Context, Message

from ...core.wire.flower_private import in_simulation
from ...core.wire.keys import CONFIG, METRICS, NUM_EXAMPLES, ROUND, TRAIN_LOSS
from ..clients import client_key


def describe(kind: str, message: Message, context: Context, reply: Message, seconds: float) -> str:
    """Return the line: client, round, what was asked, samples, loss, seconds."""
    sent = message.content.config_records.get(CONFIG) if message.has_content() else None
    number = sent.get(ROUND) if sent else None
    parts = [f"{client_key(context) or 'client'}:"]
    parts += [f"round {number}:"] if isinstance(number, int) else []
    if reply.has_error():
        return " ".join([*parts, f"{kind} failed after {seconds:.1f} s: {reply.error.reason}"])
    metrics: Mapping[str, Any] = reply.content.metric_records.get(METRICS, {})
    counts = {NUM_EXAMPLES: "{:.0f} samples", TRAIN_LOSS: "loss {:.3f}", "accuracy": "{:.1%} right"}
    told = [text.format(metrics[name]) for name, text in counts.items() if name in metrics]
    return " ".join([*parts, ", ".join([kind, *told, f"{seconds:.1f} s"])])


def write(line: str) -> None:
    """Write it where the SuperNode shows it; a simulation has its own log."""
    if not in_simulation():
        print(line, file=sys.stderr, flush=True)
