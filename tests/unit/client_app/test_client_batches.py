"""Clients that are answered together: as one by one, and never apart without need."""

from typing import Any

import numpy as np
import pytest
from flwr.app import ArrayRecord, Message, RecordDict
from forager.client_app import app
from forager.client_app.batch import ClientBatch
from forager.core.methods.catalogue import presets
from forager.tools.engine import local_grid
from forager.tools.engine.local import run_local

FEW = {"num-clients": 6, "num-server-rounds": 3, "local-epochs": 1, "clients-per-round": 4}
OTHERS = {
    "top-k": {"uplink": "top-k"},
    "local-dp": {"privacy": "local-dp"},
    "oort": {"client-selector": "oort"},
    "losses": {"client-selector": "local-loss"},
    "ifca": {"cohorts": "ifca"},
    "flexcfl": {"cohorts": "flexcfl"},
    "crust": {"data-selector": "crust"},
    "gradmatch": {"data-selector": "gradmatch"},
    "random": {"data-selector": "random"},
    "high-loss": {"data-selector": "high-loss"},
    "scaled": {"data.scale": "standard"},
    "signatures": {"strategy": "ios", "ios.signatures": True},
    "signed": {"strategy": "ios", "similarity": "signed-overlap"},
    "evaluated": {"fraction-evaluate": 1.0, "data.client-test-share": 0.2},
    "changes": {"downlink": "changes", "client-selector": "all"},
}
RUNS = {name: {"strategy": name} for name in presets()} | OTHERS


@pytest.fixture
def fell_apart(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What went wrong with the work on several clients at once."""
    seen: list[str] = []

    def watched(handle: Any) -> Any:
        def answer(batch: ClientBatch) -> Any:
            try:
                return handle(batch)
            except Exception as error:
                if len(batch) > 1:
                    seen.append(f"{batch.kind}: {error!r}")
                raise

        return answer

    for kind, handle in app.HANDLERS.items():
        monkeypatch.setitem(app.HANDLERS, kind, watched(handle))
    return seen


def settings_of(name: str, folder: Any) -> dict[str, Any]:
    return {**FEW, **RUNS[name], "output-dir": str(folder), "report": False}


@pytest.mark.parametrize("name", RUNS)
def test_the_work_on_several_clients_does_not_fail_as_a_whole(
    name: str, fell_apart: list[str], tmp_path: Any
) -> None:
    assert run_local(settings_of(name, tmp_path)).reason == "completed"
    assert fell_apart == []


def test_a_batch_that_fails_as_a_whole_is_logged_and_its_clients_are_tried_alone(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Any, said: list[str]
) -> None:
    train = app.HANDLERS["train"]

    def alone_only(batch: ClientBatch) -> Any:
        if len(batch) > 1:
            raise ValueError("not together")
        return train(batch)

    monkeypatch.setitem(app.HANDLERS, "train", alone_only)
    app._warn_once.cache_clear()
    assert run_local(settings_of("fedavg", tmp_path)).reason == "completed"
    faults = [line for line in said if "each is tried alone: ValueError: not together" in line]
    assert len(faults) == 1, "once, however many rounds"


@pytest.mark.parametrize("name", ["scaffold", "moon", "gcfl", "ode", "ios", "cosage", "auxo"])
def test_together_is_as_one_by_one(
    name: str, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    together = last_model(run_local(settings_of(name, tmp_path / "together")))
    whole = local_grid.answer

    def apart(requests: Any, contexts: Any) -> Any:
        if len(requests) == 1:
            return whole(requests, contexts)
        replies: list[Message] = []
        for row in range(len(requests)):
            replies += whole(requests.select([row]), [contexts[row]])
        return local_grid.Delivery.of(replies)

    monkeypatch.setattr(local_grid, "answer", apart)
    single = last_model(run_local(settings_of(name, tmp_path / "apart")))
    for key, array in together.items():
        np.testing.assert_allclose(single[key], array, rtol=1e-4, atol=1e-5)


def last_model(run: Any) -> dict[str, Any]:
    from safetensors.numpy import load_file

    return dict(load_file(run.folder / "model.safetensors"))


def test_a_row_that_is_closed_saves_and_the_others_do_not() -> None:
    grid = local_grid.LocalGrid(3, {"strategy": "moon"})
    contexts = [grid.contexts[node] for node in grid.contexts]
    message = Message(RecordDict(), dst_node_id=1, message_type="train")
    batch = ClientBatch(local_grid.Requests(message, list(grid.contexts)), contexts)
    for row in batch.rows:
        row.state["mine"] = {"number": row.place}
    batch.rows[1].close()
    batch.abandon()
    assert grid.contexts.changed == {contexts[1].node_id}
    with pytest.raises(RuntimeError, match="another message came"):
        batch.rows[0].close()


def test_models_that_are_one_record_are_one_dict() -> None:
    record = ArrayRecord({"w": _array()})
    message = Message(RecordDict(), dst_node_id=1, message_type="train")
    requests = local_grid.Requests(message, [1, 2, 3])
    requests.put("arrays", record)
    requests.put("arrays", ArrayRecord({"w": _array()}), rows=[2])
    batch = ClientBatch(requests, [])
    assert batch.models[0] is batch.models[1] is not batch.models[2]


def _array() -> Any:
    from flwr.app import Array

    return Array(np.zeros(2, dtype=np.float32))
