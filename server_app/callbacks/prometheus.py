"""Metrics for Prometheus: ``callbacks = "prometheus"`` writes ``metrics.prom`` after every round.

The file beside ``rounds.csv`` is for the textfile collector of the node exporter. Where the
environment variable ``FORAGER_PROMETHEUS`` names an address (``0.0.0.0:9464``), the same text is
served there during the run.
"""

import os
from collections.abc import Iterator
from threading import Thread
from typing import Any
from wsgiref.simple_server import WSGIServer

from prometheus_client import CollectorRegistry, generate_latest, start_http_server
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from ...core.storage.files import write_atomically
from ..loop import Loop
from ..run_folder import RunFolder
from .tracker import Tracker

ADDRESS = "FORAGER_PROMETHEUS"
FILE = "metrics.prom"
# What the numbers of a round mean; sums keep growing over the run.
GAUGES = {
    "accuracy": "accuracy on the server's test data",
    "loss": "loss on the server's test data",
    "train-loss": "mean loss of local training",
    "seconds": "seconds that the last round took",
    "select-seconds": "seconds of the last round that choosing took",
    "chosen": "clients chosen in the last round",
    "received": "replies of the last round that came in time",
    "late": "clients that were late in the last round",
    "clients-accuracy-mean": "mean accuracy on the clients' own test data",
    "clients-accuracy-worst-10": "mean accuracy of the worst tenth of the clients",
    "epsilon": "privacy spent",
}
COUNTERS = {
    "bytes-down": "bytes sent to clients",
    "bytes-up": "bytes received from clients",
    "bytes-select": "bytes of questions and answers before choosing",
    "bytes-test": "bytes of tests on clients, and of asking who they are",
    "failed": "messages that clients answered with an error",
    "quarantined": "replies that were set aside",
}


def metric_name(name: str) -> str:
    """Return a column's name as Prometheus wants it."""
    return f"forager_{name.replace('-', '_')}{'_total' if name in COUNTERS else ''}"


class Prometheus(Tracker, Collector):
    """Keeps the newest numbers of a run where Prometheus finds them."""

    remembers = ("run_id", "_sums", "_round")

    def __init__(self, folder: RunFolder) -> None:
        super().__init__(folder)
        self.path = folder.path / FILE
        self._run = folder.path.resolve().name
        self._round, self._rounds = 0, 0
        self._newest: dict[str, float] = {}
        self._sums = dict.fromkeys(COUNTERS, 0.0)
        self._registry = CollectorRegistry()
        self._registry.register(self)
        self._server = _serve(self._registry, os.environ.get(ADDRESS, ""))

    def open(self, config: dict[str, Any], title: str) -> str:
        """Write a file with nothing but the run in it."""
        self._rounds = int(config.get("num-server-rounds", 0))
        self._write()
        return self._run

    def on_round_end(self, loop: Loop) -> None:
        """Write what happened since."""
        super().on_round_end(loop)
        self._write()

    def log(self, server_round: int, values: dict[str, float]) -> None:
        """Take the numbers of one round."""
        self._round = max(self._round, server_round)
        self._newest |= {name: values[name] for name in GAUGES if name in values}
        for name in COUNTERS:
            self._sums[name] = self._sums.get(name, 0.0) + values.get(name, 0.0)

    def close(self, completed: bool) -> None:
        """Leave the file, and serve no more."""
        if self._server is not None:
            self._server[0].shutdown()
            self._server[0].server_close()

    def collect(self) -> Iterator[Metric]:
        """Return the newest numbers, as the client library asks for them."""
        yield self._gauge("round", "the last round that was finished", self._round)
        yield self._gauge("rounds", "the round that the run ends with", self._rounds)
        for name, value in self._newest.items():
            yield self._gauge(name, GAUGES[name], value)
        for name, value in self._sums.items():
            counter = CounterMetricFamily(metric_name(name), COUNTERS[name], labels=["run"])
            counter.add_metric([self._run], value)
            yield counter

    def _gauge(self, name: str, about: str, value: float) -> GaugeMetricFamily:
        gauge = GaugeMetricFamily(metric_name(name), about, labels=["run"])
        gauge.add_metric([self._run], value)
        return gauge

    def _write(self) -> None:
        write_atomically(self.path, generate_latest(self._registry))


def _serve(registry: CollectorRegistry, address: str) -> tuple[WSGIServer, Thread] | None:
    if not address:
        return None
    host, _, port = address.rpartition(":")
    if not port.isdecimal():
        raise ValueError(f"{ADDRESS} = {address!r}: expected host:port, such as 0.0.0.0:9464")
    return start_http_server(int(port), host, registry)
