"""Many clients at one SuperLink: ``python -m forager.benchmarks.load --clients 50 200``.

A real SuperLink and a real ServerApp on this machine, and clients that talk to it as SuperNodes do
(:mod:`forager.benchmarks.light_clients`). Prints what rounds, messages and the two programs take,
and how many replies were lost, which must be none.
"""

import argparse
import statistics
import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..core.config import Scalar
from ..core.log.events import Exchanged, RoundFinished, as_events
from ..server_app.run_folder import RunFolder
from ..tools.experiments.tables import Table
from ..tools.flower.run import wait_for_end
from .federation import Federation
from .light_clients import IDLE_SECONDS, LightClient, connect
from .watched import Taken, Watch

SUPERLINK, SERVERAPP = "flower-superlink", "flwr-serverapp"
_START_SECONDS = 180.0


@dataclass(frozen=True)
class Load:
    """What a run under load was like."""

    clients: int
    sent: int
    lost: int
    failed: Mapping[str, str]
    seconds: Sequence[float]  # of each round
    replies: Sequence[float]  # seconds until half of the replies of a round were there
    taken: Mapping[str, Taken]  # by program

    @property
    def rounds_per_minute(self) -> float:
        """By the median round after the first, which loads what the others find."""
        return 60.0 / statistics.median(self.seconds[1:] or self.seconds)

    def row(self) -> list[str]:
        """Return what a table shows of it, in the order of ``COLUMNS``."""
        programs = [self.taken[name] for name in (SUPERLINK, SERVERAPP)]
        return [
            f"{self.clients}",
            f"{len(self.seconds)}",
            f"{self.rounds_per_minute:.1f}",
            f"{self.sent:,}",
            f"{self.lost}",
            f"{statistics.median(self.replies):.1f}",
            *(f"{1000 * program.cpu / self.sent:.0f}" for program in programs),
            *(f"{program.memory / 1e6:.0f}" for program in programs),
        ]


COLUMNS = [
    "clients",
    "rounds",
    "rounds per minute",
    "messages",
    "lost replies",
    "message to reply (s)",
    "SuperLink: CPU per message (ms)",
    "ServerApp: CPU per message (ms)",
    "SuperLink: memory (MB)",
    "ServerApp: memory (MB)",
]


def run_under_load(
    folder: Path, clients: int, rounds: int, idle: float, config: dict[str, Scalar]
) -> Load:
    """Start everything, run, stop everything; return what was measured."""
    run_config: dict[str, Scalar] = {
        "client-selector": "all",
        "num-server-rounds": rounds,
        "num-clients": clients,
        "report": False,
        "round.deadline": 120.0,
        "data.cache-dir": str(folder / "cache"),
        "output-dir": str(folder / "runs"),
        "run-name": "load",
        **config,
    }
    with ExitStack() as ending:
        federation = Federation(folder)
        ending.callback(federation.stop)
        watch = Watch(federation.superlink, (SUPERLINK, SERVERAPP))
        watch.start()
        ending.callback(watch.stop)
        crowd = connect(federation.fleet, clients, idle)
        ending.callback(_dismiss, crowd)
        federation.superlink.wait_for(
            lambda: len(federation.activations()) >= clients, _START_SECONDS
        )
        run_id = federation.cli.submit(federation.app, run_config)
        log = "\n".join(federation.cli.log(run_id))
        if not wait_for_end(federation.cli, run_id).succeeded:
            raise RuntimeError(f"the run failed:\n{log[-3000:]}")
    broken = [str(client.error) for client in crowd if client.error is not None]
    if broken:
        raise RuntimeError(f"{len(broken)} clients broke: {broken[0]}")
    return measured(RunFolder.open(folder / "runs" / "load").read_events(), clients, watch.taken)


def _dismiss(crowd: Sequence[LightClient]) -> None:
    for client in crowd:
        client.stop()
    for client in crowd:
        client.join(10)


def measured(log: Iterable[Mapping[str, Any]], clients: int, taken: Mapping[str, Taken]) -> Load:
    """Return what a run's events tell.

    >>> events = [
    ...     {"event": "exchange", "sent": 2, "received": 1, "failed": {}, "late": ["1"]},
    ...     {"event": "round-finished", "round": 1, "seconds": 6.0},
    ... ]
    >>> found = measured(events, 2, {})
    >>> found.lost, found.rounds_per_minute
    (1, 10.0)
    """
    events = list(as_events(log))
    exchanges = [event for event in events if isinstance(event, Exchanged)]
    trained = [e.reply_seconds for e in exchanges if e.kind == "train"]
    sent, received = sum(e.sent for e in exchanges), sum(e.received for e in exchanges)
    return Load(
        clients=clients,
        sent=sent,
        lost=sent - received,
        failed={key: text for e in exchanges for key, text in e.failed.items()},
        seconds=[e.seconds or 0.0 for e in events if isinstance(e, RoundFinished)],
        replies=[seconds.median for seconds in trained if seconds is not None],
        taken=taken,
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Run from the command line; fail if a reply is lost."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--clients", type=int, nargs="+", default=[50, 200])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--idle", type=float, default=IDLE_SECONDS, help="seconds between looks")
    parser.add_argument("--selector", default="all")
    parser.add_argument("--per-round", type=int, default=0, help="clients that train; 0 for all")
    options = parser.parse_args(arguments)
    config: dict[str, Scalar] = {
        "client-selector": options.selector,
        "clients-per-round": options.per_round,
    }
    loads = []
    for clients in options.clients:
        with tempfile.TemporaryDirectory() as folder:
            loads.append(
                run_under_load(Path(folder), clients, options.rounds, options.idle, config)
            )
    print(Table([COLUMNS, *(load.row() for load in loads)]).markdown())
    return 1 if any(load.lost for load in loads) else 0


if __name__ == "__main__":
    sys.exit(main())
