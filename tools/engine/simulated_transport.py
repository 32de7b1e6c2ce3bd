"""Simulated devices: how fast they are, when their answers arrive, and the clock of that."""

import math
from bisect import insort
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from flwr.app import ArrayRecord, Error, Message
from numpy.typing import ArrayLike

from ...core.config import ConfigError, RunConfig, read_config
from ...core.learning.train_settings import given_steps, train_settings
from ...core.methods.base import load
from ...core.methods.catalogue import methods
from ...core.methods.selector import PROXY_BATCHES
from ...core.wire.delivery import Delivery
from ...core.wire.flower_private import message_from_bytes, message_to_bytes
from ...core.wire.keys import (
    ARRAYS,
    ASK_LOSSES,
    ASK_SUPPORT,
    CORESET,
    LOSS,
    NUM_EXAMPLES,
    ROUND,
    SECONDS,
    SIMILARITY,
    SPARSE,
    STEPS,
    SUMMARY,
    WANTS,
    WORK,
)
from ...core.wire.records import answered_id
from ...core.wire.replies import Replies
from ...core.wire.requests import Requests
from ...selectors.stateful import Stateful
from ...strategies.federation.clock import Clock
from .availability import Availability, Floats


class DeviceSpeeds:
    """What each client's device can do: train on a sample, and send or receive bytes."""

    def __init__(self, seconds_per_sample: ArrayLike, bytes_per_second: ArrayLike) -> None:
        self.seconds_per_sample = np.asarray(seconds_per_sample, dtype=np.float64)
        self.bytes_per_second = np.asarray(bytes_per_second, dtype=np.float64)
        names, both = "seconds_per_sample, bytes_per_second", vars(self).values()
        if any(values.ndim != 1 for values in both) or len({len(values) for values in both}) > 1:
            raise ValueError(f"{names}: expected one number per client in each")
        if not all(np.all(np.isfinite(values) & (values > 0)) for values in both):
            raise ValueError(f"{names}: expected positive numbers")

    @classmethod
    def drawn(
        cls,
        clients: int,
        seed: int = 0,
        seconds_per_sample: float = 0.02,
        bytes_per_second: float = 1e6,
        spread: float = 1.0,
    ) -> "DeviceSpeeds":
        """Return log-normal speeds with these medians; defaults assume a small model on a phone."""
        rng = np.random.default_rng(seed)
        compute = seconds_per_sample * rng.lognormal(0.0, spread, clients)
        return cls(compute, bytes_per_second * rng.lognormal(0.0, spread, clients))

    def round_seconds(
        self, clients: ArrayLike, samples: ArrayLike, down: ArrayLike, up: ArrayLike
    ) -> Floats:
        """Return how long a round takes for each of some clients; samples count every epoch."""
        who = np.asarray(clients, dtype=np.intp)
        compute = np.asarray(samples) * self.seconds_per_sample[who]
        sent = np.asarray(down) + np.asarray(up)
        return np.asarray(compute + sent / self.bytes_per_second[who])


@dataclass(eq=False)
class SimulatedDevices(Stateful):
    """The clock, and what every client's device can do."""

    remembers = ("clock",)

    clients: int
    speeds: DeviceSpeeds | None = None
    availability: Availability | None = None
    clock: float = 0.0

    def present(self) -> list[int]:
        """Return who is online now; if nobody is, time passes until somebody is."""
        if self.availability is None:
            return list(range(self.clients))
        here = np.flatnonzero(self.availability.available(self.clock))
        if not here.size:
            arrival = self.availability.next_arrival(self.clock)
            if arrival is not None:
                self.clock = arrival + 1e-6
                here = np.flatnonzero(self.availability.available(self.clock))
        return [int(client) for client in here]

    def seconds(
        self, clients: Sequence[int], samples: Sequence[int], down: Sequence[int], up: Sequence[int]
    ) -> list[float]:
        """Return how long each client's answer takes."""
        if self.speeds is None:
            return [0.0] * len(clients)
        return [float(s) for s in self.speeds.round_seconds(clients, samples, down, up)]

    def seconds_left(self, client: int) -> float:
        """Return for how long a client will be online."""
        if self.availability is None:
            return math.inf
        return float(self.availability.seconds_left(self.clock)[client])


def simulated_devices(config: RunConfig) -> SimulatedDevices | None:
    """Return the devices that a config describes, or None if all are alike and always online."""
    settings, clients = config.devices, config.num_clients
    if settings.availability == "always" and not settings.slow:
        return None
    speeds = None
    if settings.slow:
        medians = settings.seconds_per_sample, settings.bytes_per_second
        speeds = DeviceSpeeds.drawn(clients, config.seed, *medians, settings.spread)
    if settings.availability == "always":
        return SimulatedDevices(clients, speeds)
    if settings.availability == "day-night":
        trace = Availability.day_and_night(clients, config.seed)
    else:
        trace = _read_trace(settings.availability, clients)
    return SimulatedDevices(clients, speeds, trace)


def _read_trace(path: str, clients: int) -> Availability:
    """Read a trace: an ``.npz`` file with ``owner``, ``start``, ``end`` and ``period``."""
    try:
        with np.load(Path(path), allow_pickle=False) as arrays:
            owner, start, end = (arrays[name] for name in ("owner", "start", "end"))
            return Availability(clients, owner, start, end, float(arrays["period"]))
    except (OSError, KeyError, ValueError) as error:
        raise ConfigError(
            f"run config: devices.availability = {path!r}: always, day-night, or an .npz file with "
            f"owner, start, end, period ({error})"
        ) from error


_LEFT = 5  # Flower's code for a node that is gone
_MOST_UNREAD = 1000  # answers that are kept though nobody has asked for them since they arrived


class SimulatedClock(Clock):
    """The time of simulated devices, which passes while somebody waits."""

    poll = 0.0
    between_looks = math.inf

    def __init__(self, transport: "SimulatedTransport") -> None:
        self._transport = transport

    def now(self) -> float:
        """Return the simulated seconds since the run began."""
        return self._transport.devices.clock

    def wait(self, at_most: float) -> None:
        """Let time pass until the next answer arrives, but no longer than that."""
        devices = self._transport.devices
        following = self._transport.next_arrival()
        end = devices.clock + at_most
        end = end if following is None else min(end, following)
        if np.isfinite(end):
            devices.clock = max(devices.clock, end)

    def simulated_since(self, moment: float) -> float:
        """Return the seconds since then."""
        return self.now() - moment


class SimulatedTransport:
    """Answers on their way."""

    def __init__(
        self, devices: SimulatedDevices, first_node: int, run_config: Mapping[str, Any]
    ) -> None:
        self.devices = devices
        self.clock = SimulatedClock(self)
        self._first_node = first_node
        self._run_config = run_config
        self._coming: list[tuple[float, int, str]] = []  # when, in which order, which message
        self._answers: dict[str, Replies | Message] = {}
        self._carried = 0

    def carry(self, sent: Requests, answers: Delivery) -> None:
        """Take the answers to what was sent, each of which arrives when its time has come."""
        rows = {message_id: row for row, message_id in enumerate(sent.ids)}
        down = sent.row_bytes()
        singles = [table.select([row]) for table in answers.tables for row in range(len(table))]
        replies: dict[str, Replies | Message] = {table.asked[0]: table for table in singles}
        replies |= {answered_id(error): error for error in answers.errors}
        ids = sorted(replies, key=rows.__getitem__)
        clients = [sent.nodes[rows[each]] - self._first_node for each in ids]
        up = [r.row_bytes()[0] if isinstance(r := replies[i], Replies) else 0 for i in ids]
        samples = [self._samples(sent, rows[each], replies[each]) for each in ids]
        took = self.devices.seconds(clients, samples, [down[rows[each]] for each in ids], up)
        for message_id, client, seconds in zip(ids, clients, took, strict=True):
            reply, stays = replies[message_id], self.devices.seconds_left(client)
            if isinstance(reply, Replies) and SECONDS in reply.metrics:
                reply.set_metric(SECONDS, [seconds])
            if seconds > stays:
                asked = sent.messages()[rows[message_id]]
                reply = Message(Error(_LEFT, "left before it was done"), reply_to=asked)
            self._add(self.devices.clock + min(seconds, stays), message_id, reply)

    def _add(self, when: float, message_id: str, reply: Replies | Message) -> None:
        self._carried += 1
        insort(self._coming, (when, self._carried, message_id))
        self._answers[message_id] = reply

    def next_arrival(self) -> float | None:
        """Return when the next answer arrives; None if none is on its way."""
        now = self.devices.clock
        return next((when for when, _, _ in self._coming if when > now), None)

    def arrived(self, message_ids: Iterable[str]) -> Delivery:
        """Return the answers to messages that have arrived by now, in that order."""
        wanted = set(message_ids)
        now = self.devices.clock
        here = [(when, i) for when, _, i in self._coming if when <= now and i in wanted]
        for when, message_id in here:
            if isinstance(reply := self._answers[message_id], Replies):
                reply.arrived = when
        taken = {message_id for _, message_id in here}
        self._coming = [each for each in self._coming if each[2] not in taken]
        found = [self._answers.pop(each) for _, each in here]
        unread = sum(when <= now for when, _, _ in self._coming) - _MOST_UNREAD
        for _, _, oldest in self._coming[: max(0, unread)]:
            del self._answers[oldest]
        self._coming = self._coming[max(0, unread) :]
        return Delivery(
            [reply for reply in found if isinstance(reply, Replies)],
            [reply for reply in found if isinstance(reply, Message)],
        )

    def _samples(self, sent: Requests, row: int, reply: Replies | Message) -> int:
        """Return the samples trained on, epochs included; a loss (forward pass) counts a third."""
        if isinstance(reply, Message):
            return 0
        examples = float(reply.metrics.get(NUM_EXAMPLES, [0])[0] or 0)
        content, kind = sent.content(row), sent.kind
        models = [name for name, record in content.items() if type(record) is ArrayRecord]
        if kind == ASK_LOSSES:
            return round(examples * len(models) / 3)
        config, asked = read_config(self._run_config), sent.config
        if kind == SUMMARY:
            batches = PROXY_BATCHES * config.batch_size
            wants = str(asked.get(WANTS, ""))
            return {LOSS: round(examples / 3), SIMILARITY: batches}.get(wants, 0)
        if kind == ASK_SUPPORT and ARRAYS in models:
            teller = load(methods("similarity")[config.similarity].hook)(config)
            passes: int = config.local_epochs * teller.trains + teller.passes
            return round(examples * passes)
        if not reply.has(ARRAYS) and not reply.has(SPARSE):
            return 0  # an answer without a model took almost no training
        if (work := content.get(WORK)) is not None:
            told = next(reply.rows()).config(CORESET) or {}
            looked = round(examples / 3) if told.get(ROUND) == asked[ROUND] else 0  # to choose it
            steps = given_steps(work, train_settings(config, 1), examples)
            return looked + steps * min(config.batch_size, round(examples))
        steps = int(asked.get(STEPS, 0)) or config.local_steps
        return steps * config.batch_size or round(examples * config.local_epochs)

    def state_dict(self, pending: Mapping[str, tuple[Requests, int]]) -> dict[str, Any]:
        """Return the time, the answers on their way, and messages that wait for an answer."""
        coming = []
        for when, _, message_id in self._coming:
            reply = self._answers[message_id]
            message = reply if isinstance(reply, Message) else reply.messages()[0]
            content = np.frombuffer(message_to_bytes(message), dtype=np.uint8)
            coming.append({"id": message_id, "arrives": when, "reply": content})
        waiting = [
            np.frombuffer(message_to_bytes(requests.messages()[row]), dtype=np.uint8)
            for requests, row in pending.values()
        ]
        return {"devices": self.devices.state_dict(), "coming": coming, "pending": waiting}

    def load_state_dict(self, state: Mapping[str, Any]) -> dict[str, tuple[Requests, int]]:
        """Restore what :meth:`state_dict` returned; return the messages that wait."""
        self._coming, self._answers = [], {}
        if "devices" in state:
            self.devices.load_state_dict(state["devices"])
        for kept in state.get("coming", []):
            message = message_from_bytes(kept["reply"].tobytes())
            reply = message if message.has_error() else Replies.of(message)
            self._add(float(kept["arrives"]), str(kept["id"]), reply)
        waiting = [message_from_bytes(kept.tobytes()) for kept in state.get("pending", [])]
        requests = Requests.of(waiting)
        if requests is None:
            return {}
        return {each: (requests, row) for row, each in enumerate(requests.ids)}
