"""Rounds per hour where some clients never answer: ``python -m forager.benchmarks.silent_clients``.

Ten clients on the local engine, of which some are connected but leave every message unanswered. The
deadlines are a small part of the defaults, and each answer takes a moment, as on a network.
"""

import tempfile
import time
from collections.abc import Iterable

from flwr.app import Message

from ..core.config import Scalar, default_config, read_config
from ..core.wire.keys import IDENTIFY
from ..server_app.app import build_loop, configure_logging
from ..tools.engine.local_grid import LocalGrid

ROUNDS = 40
_SETTINGS: dict[str, Scalar] = {
    "num-server-rounds": ROUNDS,
    "num-clients": 10,
    "clients-per-round": 3,
    "round.deadline": 1.2,
    "round.question-deadline": 0.12,
    "report": False,
}
_ANSWER_SECONDS = 0.01


class GridWithSilentClients(LocalGrid):
    """A local grid on which the last few clients take messages and never answer."""

    silent = 0

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        """Take messages; those to silent clients are lost."""
        messages = list(messages)
        ids = list(super().push_messages(messages))
        quiet = set(sorted(self.contexts)[len(self.contexts) - self.silent :])
        for message_id, message in zip(ids, messages, strict=True):
            identifies = message.metadata.message_type == IDENTIFY
            if message.metadata.dst_node_id in quiet and not identifies:
                del self._pending[message_id]
        time.sleep(_ANSWER_SECONDS)
        return ids


def rounds_per_hour(selector: str, silent: int, seed: int) -> float:
    """Run some rounds and return how many an hour would hold."""
    with tempfile.TemporaryDirectory() as folder:
        settings: dict[str, Scalar] = {
            "client-selector": selector,
            "seed": seed,
            "output-dir": folder,
        }
        config = {**default_config(), **_SETTINGS, **settings}
        grid = GridWithSilentClients(read_config(config).num_clients, config)
        grid.silent = silent
        _, loop = build_loop(grid, config)
        started = time.monotonic()
        loop.run()
        return ROUNDS / (time.monotonic() - started) * 3600


def main() -> None:
    """Print a table: selectors down, silent clients across, mean of two seeds."""
    configure_logging(40)
    print("| selector | none silent | 1 of 10 | 3 of 10 |\n| --- | --- | --- | --- |")
    for selector in ("random", "cosage"):
        rates = [
            sum(rounds_per_hour(selector, silent, seed) for seed in range(2)) / 2
            for silent in (0, 1, 3)
        ]
        print(f"| {selector} | {' | '.join(f'{rate:,.0f}' for rate in rates)} |", flush=True)


if __name__ == "__main__":
    main()
