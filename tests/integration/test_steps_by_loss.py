"""Steps by loss on the local engine: who is behind trains for longer."""

import itertools
import json
from typing import Any

import pytest
from forager.client_app.batch import ClientBatch
from forager.core.learning.train_settings import local_steps, train_settings
from forager.tools.engine.local import run_local


@pytest.fixture
def keys(tmp_path: Any) -> dict[str, Any]:
    return {
        "output-dir": str(tmp_path / "runs"),
        "report": False,
        "num-clients": 12,
        "clients-per-round": 6,
        "client-selector": "local-loss",
        "work": "by-loss",
        "num-server-rounds": 4,
        "local-epochs": 5,
        "evaluate-every": 4,
        "model": "softmax",
    }


def test_clients_take_the_steps_of_their_losses(
    keys: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    taken, own = [], ClientBatch.jobs

    def jobs(batch: ClientBatch) -> Any:
        found = own(batch)
        if batch.trains:
            usual = train_settings(batch.config, batch.round)
            taken.append(
                {
                    k: job.steps / local_steps(usual, len(job.data))
                    for k, job in zip(batch.keys, found, strict=True)
                }
            )
        return found

    monkeypatch.setattr(ClientBatch, "jobs", jobs)
    result = run_local({**keys, "devices.slow": True})
    lines = map(json.loads, (result.folder / "events.jsonl").read_text().splitlines())
    chosen = [e for e in lines if e["event"] == "selected" and e["phase"] == "train"]
    assert len(chosen) == 4
    for shares, event in zip(taken, chosen, strict=True):
        ordered = [shares[key] for key in event["chosen"]]  # the highest loss first
        assert ordered[0] == pytest.approx(1.0)
        assert ordered[-1] == pytest.approx(0.2, abs=0.1)
        assert all(later <= before + 0.1 for before, later in itertools.pairwise(ordered))


@pytest.mark.parametrize("more", [{}, {"local-steps": 8}], ids=str)
def test_a_resumed_run_ends_in_the_same_model(keys: dict[str, Any], more: Any) -> None:
    keys = {**keys, **more, "local.check-wire": True}
    whole = run_local({**keys, "run-name": "whole"})
    half = run_local({**keys, "num-server-rounds": 2, "run-name": "half"})
    again = run_local({**keys, "resume-from": str(half.folder)})
    models = [(r.folder / "model.safetensors").read_bytes() for r in (whole, again)]
    assert models[0] == models[1]


@pytest.mark.parametrize("trainer", ["stack", "threads", "serial"])
def test_every_trainer_takes_the_same_steps(keys: dict[str, Any], trainer: str) -> None:
    results = [run_local({**keys, "local.trainer": name}) for name in ("auto", trainer)]
    scores = [result.rounds[-1]["loss"] for result in results]
    assert scores[0] == pytest.approx(scores[1], rel=1e-4)
