"""What was accepted in one round and spoils all later ones is undone, once."""

import json
import logging

import numpy as np
import pytest
from forager.core.wire.arrays import to_record
from forager.core.wire.delivery import Delivery
from forager.core.wire.keys import ARRAYS
from forager.server_app import retries
from forager.server_app.retries import RunFailed
from forager.strategies.layers.scaffold import ScaffoldLayer
from forager.tools.engine import local_grid
from forager.tools.engine.local import run_local


@pytest.fixture
def small(tmp_path, monkeypatch):
    monkeypatch.setattr(retries, "_PAUSE", 0.0)
    return {
        "output-dir": str(tmp_path / "runs"),
        "run-name": "one",
        "report": False,
        "num-server-rounds": 5,
        "num-clients": 6,
        "clients-per-round": 4,
        "objective": "scaffold",
    }


def poison(monkeypatch, times):
    """Let the control variate come out of round 3 much too long, some times."""
    honest, done = ScaffoldLayer.aggregate_train, []

    def spoilt(self, server_round, replies):
        result = honest(self, server_round, replies)
        if server_round == 3 and len(done) < times:
            done.append(server_round)
            self.control = {n: np.full_like(a, 3e38) for n, a in self.control.items()}
        return result

    monkeypatch.setattr(ScaffoldLayer, "aggregate_train", spoilt)


def events(folder, kind):
    lines = (folder / "events.jsonl").read_text().splitlines()
    return [e for e in map(json.loads, lines) if e["event"] == kind]


def test_the_run_goes_back_and_goes_on(small, monkeypatch, caplog):
    honest = run_local({**small, "run-name": "honest"})
    poison(monkeypatch, times=1)
    with caplog.at_level(logging.WARNING, "forager"):
        result = run_local(small)
    assert result.reason == "completed"
    (back,) = events(result.folder, "rolled-back")
    assert (back["round"], back["to"]) == (4, 2)
    assert "set aside" in back["reason"]
    assert [e["round"] for e in events(result.folder, "round-finished")] == [1, 2, 3, 3, 4, 5]
    # The generators went back too: it is the run that it would have been.
    models = [(r.folder / "model.safetensors").read_bytes() for r in (honest, result)]
    assert models[0] == models[1]
    saved = sorted(path.name for path in (result.folder / "checkpoints").glob("round-*"))
    assert saved == ["round-000004.safetensors", "round-000005.safetensors"]


def test_what_spoils_it_again_ends_the_run(small, monkeypatch, tmp_path):
    poison(monkeypatch, times=2)
    with pytest.raises(RunFailed, match="set aside"):
        run_local({**small, "round.give-up-after": 1.0})
    assert len(events(tmp_path / "runs" / "one", "rolled-back")) == 1


def test_a_resumed_run_goes_back_too(small, monkeypatch, tmp_path):
    poison(monkeypatch, times=1)
    with monkeypatch.context() as patience:
        patience.setattr(retries, "ROLL_BACK_AFTER", 10**6)
        with pytest.raises(RunFailed, match="set aside"):
            run_local({**small, "round.give-up-after": 0.1})
    folder = tmp_path / "runs" / "one"
    assert not events(folder, "rolled-back")
    result = run_local({**small, "resume-from": str(folder)})
    assert result.reason == "completed"
    assert [(e["round"], e["to"]) for e in events(folder, "rolled-back")] == [(4, 2)]


def test_without_an_earlier_checkpoint_the_run_ends_as_it_would(small, monkeypatch):
    poison(monkeypatch, times=1)
    with pytest.raises(RunFailed, match="set aside"):
        run_local({**small, "checkpoint.keep": 1, "round.give-up-after": 0.2})


def test_a_failed_round_is_played_again_without_those_who_spoilt_it(small, monkeypatch):
    honest, bad = local_grid.answer, set()

    def answer(requests, contexts):
        replies = list(honest(requests, contexts))
        if requests.kind == "train":
            bad.update([contexts[0].node_config["partition-id"]] if not bad else ())
            for reply, context in zip(replies, contexts, strict=True):
                if context.node_config["partition-id"] in bad:
                    arrays = {n: a.numpy() * np.nan for n, a in reply.content[ARRAYS].items()}
                    reply.content[ARRAYS] = to_record(arrays)
        return Delivery.of(replies)

    monkeypatch.setattr(local_grid, "answer", answer)
    alone = {"objective": "sgd", "client-selector": "local-loss", "clients-per-round": 1}
    result = run_local({**small, **alone})
    assert result.reason == "completed"
    chosen = [e["chosen"] for e in events(result.folder, "selected") if e["phase"] == "train"]
    assert {f"{client}" for client in bad} == set(chosen[0])
    assert len(chosen) > 5  # rounds were played again
    assert chosen[-1] != chosen[0]
