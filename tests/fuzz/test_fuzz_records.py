"""One thing wrong in one reply: every method, every kind of message, every record and entry.

Real clients answer on the local engine, and one of them has its replies damaged: one thing of one
reply at a time (``damages.py``). Whatever it is, the run goes on, nobody else is blamed, every
round's checkpoint can be read, the log stays small, and a run resumed from it is fine.
"""

import json
import logging
import math
import os
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from itertools import product
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np
import pytest
from damages import HUGE, MORE, Damage, damages_of
from flwr.app import Message, RecordDict
from flwr.common.serde import message_from_proto, message_to_proto
from forager.core.config import ConfigError, default_config, read_config
from forager.core.methods.catalogue import methods
from forager.core.wire.arrays import from_record
from forager.core.wire.keys import ARRAYS, CLIENT, IDENTIFY, METRICS
from forager.server_app.app import build_loop
from forager.server_app.callbacks.checkpoint import load_checkpoint
from forager.server_app.loop import Loop
from forager.server_app.run_folder import RunFolder
from forager.tools.engine.local_grid import LocalGrid
from fuzzing import fuzz
from hypothesis import given, settings
from hypothesis import strategies as st

LONG = "FUZZ_EXAMPLES" in os.environ
CLIENTS = 6
SHARED = {ARRAYS, METRICS, CLIENT, MORE, HUGE}  # records of every method: each tries some of them
READ_METRICS = {"client-selector=oort", "client-selector=random", "cosage-piggyback"}
READ_METRICS |= {"client-selector=local-loss", "aggregator=qfedavg"}
MOST_LOGGED = 3 * 2**20  # bytes of events.jsonl, however often a client sends a megabyte of text
SHORT = 3  # rounds of a run in which a client is asked once
MOST_ROUNDS = 700

BASE: dict[str, Any] = {
    "num-clients": CLIENTS,
    "num-server-rounds": 10_000,
    "local-steps": 1,
    "clients-per-round": 5,
    "round.give-up-after": 1e-9,  # a round that has to be tried again fails the test
    "report": False,
    "checkpoint.every": 1,
    "checkpoint.keep": 1,
}
EVALUATES = {"fraction-evaluate": 1.0, "data.client-test-share": 0.2}
SOON = {"ios.first-round": 1, "ios.every": 1, "cohort.joint-rounds": 1}
SOON |= {
    "auxo.first-split": 1,
    "auxo.first-clustering": 1,
    "coreset.first-round": 0,
    "coreset.every": 2,
}
FOR_ALL_RULES = "centred-overlap"
SPLITS = ("split-rounds", "min-participants")
AXES = ("client-selector", "data-selector", "objective", "uplink", "privacy", "aggregator")


def _methods() -> dict[str, dict[str, Any]]:
    """Return the run configs to try: each value of each axis, and cohorts with similarities."""
    found: dict[str, dict[str, Any]] = {}
    for axis in AXES:
        found |= {f"{axis}={name}": {axis: name} for name in methods(axis)}
    found["aggregator=bulyan"] |= {"num-clients": 8, "clients-per-round": 8}
    for cohorts, similarity in _grouped():
        name, config = f"{cohorts}-{similarity}", {"cohorts": cohorts, "similarity": similarity}
        found[name] = config
        if similarity in ("centred-overlap", "signed-overlap"):
            found[f"{name}-signed"] = {**config, "ios.signatures": True}
    found["clove-none"]["client-selector"] = "all"  # else the offender is not chosen in time
    for cohorts in ("split-test", "auxo"):
        eager = {f"{cohorts}.{name}": 1 for name in SPLITS}
        found[f"{cohorts}-splits"] = {"cohorts": cohorts, "clients-per-round": 3, **eager}
    found["cosage-piggyback"] = {"client-selector": "cosage", "summary.mode": "piggyback"}
    found["ode-exact"] = {"data-selector": "ode-balanced", "ode.estimator": "exact"}
    return {name: full for name, config in found.items() if (full := _possible(config))}


def _grouped() -> list[tuple[str, str]]:
    """Return cohort rules with similarities: all pairs, in the suite each similarity once.

    Whoever groups clients by it, what they send for a similarity is read by the same code.
    """
    pairs = list(product(methods("cohorts"), methods("similarity")))
    if LONG:
        return pairs
    return [(c, s) for c, s in pairs if c == "similarity" or s in ("none", FOR_ALL_RULES)]


def _possible(config: dict[str, Any]) -> dict[str, Any] | None:
    """Return a whole config of a method, where there is one: some cannot let clients evaluate."""
    for more in (EVALUATES, {}):
        try:
            read_config({**default_config(), **BASE, **SOON, **more, **config})
        except ConfigError:
            continue
        return {**BASE, **SOON, **more, **config}
    return None


METHODS = _methods()
FIRST_NODE = 1000  # of the local engine
Change = Callable[[str, Message], Message]  # of the offender's reply to a kind of message


def _as_it_is(kind: str, reply: Message) -> Message:
    return reply


class LyingGrid(LocalGrid):
    """A grid on which replies of one client are changed on their way."""

    change: Change
    bad: str

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        """Return what clients answered, or what became of it."""
        replies = super().pull_messages(message_ids)
        return [self._changed(reply) for reply in replies]

    def _changed(self, reply: Message) -> Message:
        if reply.metadata.src_node_id != FIRST_NODE + int(self.bad) or reply.has_error():
            return reply
        changed = self.change(reply.metadata.message_type, reply)
        return message_from_proto(message_to_proto(changed))  # as it would arrive


class Run:
    """A run on the local engine in which one client's replies are changed."""

    def __init__(self, method: str, cache: str, folder: Path, change: Change, bad: str) -> None:
        config = {**METHODS[method], "data.cache-dir": cache, "output-dir": str(folder)}
        self.config = {**default_config(), **config}
        self.change, self.bad = change, bad
        self.folder, self.loop = self._build()

    def _build(self, **more: Any) -> tuple[RunFolder, Loop]:
        run_config = {**self.config, **more}
        clients = int(run_config["num-clients"])
        grid = LyingGrid(clients, run_config)
        grid.change, grid.bad = self.change, self.bad
        return build_loop(grid, run_config)

    def play(self) -> None:
        """Play a round; its checkpoint can be read."""
        with _nothing_swallowed():
            self.loop.play_round()
        _, state = load_checkpoint(str(self.folder.path))
        assert state["round"] == self.loop.round

    def finish(self) -> None:
        """Go on from the last checkpoint with honest clients only, and look at what is left."""
        self._look_at_log()
        self.change = _as_it_is
        with _nothing_swallowed():
            self.folder, self.loop = self._build(**{"resume-from": str(self.folder.path)})
            self.loop.plan.num_rounds = self.loop.round + 2
            assert self.loop.run() == "completed"
        arrays = from_record(self.loop.arrays)
        assert all(np.isfinite(array).all() for array in arrays.values())
        self._look_at_log()

    def _look_at_log(self) -> None:
        path = self.folder.path / "events.jsonl"
        assert path.stat().st_size < MOST_LOGGED, "the log grows with what a client sends"
        events = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
        for event in events:
            assert event.get("client", self.bad) in self._names(), event
            assert set(event.get("failed", ())) <= self._names(), event
            assert not event.get("late"), event
            if event["event"] == "cohort-failed":  # one of nobody but the offender may
                assert "too few replies" in event["reason"], event

    def _names(self) -> set[str]:
        return {self.bad, f"node-{FIRST_NODE + int(self.bad)}"}


@contextmanager
def _nothing_swallowed() -> Iterator[None]:
    """Fail on what the loop logs and goes on from: faults of ours, and files not written."""
    bad: list[str] = []

    class Listener(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            text = record.getMessage()
            if record.levelno >= logging.ERROR or "could not be" in text:
                bad.append(f"{text}: {record.exc_info[1]!r}" if record.exc_info else text)

    logger, listener = logging.getLogger("forager"), Listener()
    logger.addHandler(listener)
    try:
        yield
    finally:
        logger.removeHandler(listener)
    assert not bad, "\n".join(bad)[:2000]


def _honest(method: str, cache: str, folder: Path) -> tuple[dict[str, RecordDict], Counter[str]]:
    """Return an honest reply of each kind, and how often each was asked for in the last rounds."""
    seen: dict[str, dict[str, Any]] = {}
    late: Counter[str] = Counter()

    def change(kind: str, reply: Message) -> Message:
        seen[kind] = {**seen.get(kind, {}), **reply.content}
        late[kind] += run.loop.round >= 2
        return reply

    run = Run(method, cache, folder, change, "0")
    for _ in range(5):
        run.play()
    run.finish()
    return {kind: RecordDict(records) for kind, records in seen.items()}, late


def _worth_trying(method: str, kind: str, content: RecordDict, once: bool) -> list[Damage]:
    """Return damages: most of a method's own records, and others for each method.

    A run can do one to every answer, but needs to be begun again for what is asked once.
    """
    found = damages_of(content)
    if LONG:
        return found
    shared = SHARED if kind in ("train", "evaluate") else {CLIENT, MORE, HUGE}
    if kind == "train" and method in READ_METRICS:
        shared = shared - {METRICS}
    own = [damage for damage in found if damage.record not in shared]
    others = [damage for damage in found if damage.record in shared]
    turn = crc32(f"{method} {kind}".encode())
    return _some(own, 1 if once else 5, turn) + _some(others, 1, turn)


def _some(damages: list[Damage], most: int, turn: int) -> list[Damage]:
    """Return damages evenly from a list, others in every turn."""
    step = max(1, math.ceil(len(damages) / most))
    return damages[turn % step :: step]


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> str:
    logging.getLogger("flwr").setLevel(logging.WARNING)
    return str(tmp_path_factory.mktemp("cache"))


@pytest.mark.parametrize("method", METHODS)
def test_one_thing_wrong_in_a_reply(method: str, cache: str, tmp_path: Path) -> None:
    replies, asked = _honest(method, cache, tmp_path)
    assert "train" in replies
    for kind, content in replies.items():
        if kind == IDENTIFY and "=" in method and method != "client-selector=random":
            continue  # who is who is found out the same way by all
        once = asked[kind] < 2
        damages = _worth_trying(method, kind, content, once)
        _survives(method, kind, damages, cache, tmp_path, SHORT if once else MOST_ROUNDS)


def _survives(
    method: str, kind: str, damages: list[Damage], cache: str, folder: Path, rounds: int
) -> None:
    """Do all damages to replies of one kind, in as few runs as that takes."""
    rest, done = list(damages), list[Damage]()

    def change(to: str, reply: Message) -> Message:
        if to != kind or not rest:
            return reply
        done.append(rest.pop(0))
        return done[-1].apply(reply)

    while rest:
        before = len(rest)
        run = Run(method, cache, folder, change, "0")
        if kind != "evaluate":
            run.loop.plan.evaluate_every = MOST_ROUNDS + 1
        try:
            while rest and run.loop.round < rounds:
                run.play()
            run.finish()
        except BaseException as error:
            error.add_note(f"{method}, {kind}, after {', '.join(map(str, done[-3:]))}")
            raise
        shutil.rmtree(run.folder.path)
        assert len(rest) < before, f"{kind} is not asked for any more"


if LONG:  # `make fuzz`

    @pytest.mark.parametrize("method", METHODS)
    def test_any_things_wrong_in_replies(method: str, cache: str, tmp_path: Path) -> None:
        replies, _ = _honest(method, cache, tmp_path)
        every = {kind: damages_of(content) for kind, content in replies.items()}
        one = st.one_of(
            *(st.tuples(st.just(kind), st.sampled_from(found)) for kind, found in every.items())
        )

        @settings(fuzz, max_examples=max(1, fuzz.max_examples // 100))
        @given(st.lists(st.lists(one, max_size=3), min_size=1, max_size=4), st.sampled_from("03"))
        def survives(rounds: list[list[tuple[str, Damage]]], bad: str) -> None:
            def change(kind: str, reply: Message) -> Message:
                for to, damage in rounds[max(0, run.loop.grid.round - 1)]:
                    if to == kind:
                        with suppress(TypeError):  # not what such a record can hold: not to be sent
                            reply = damage.apply(reply)
                return reply

            with tempfile.TemporaryDirectory(dir=tmp_path) as place:
                run = Run(method, cache, Path(place), change, bad)
                for _ in rounds:
                    run.play()
                run.finish()

        survives()
