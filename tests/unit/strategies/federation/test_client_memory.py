"""What the server remembers of clients: bounded, whoever comes and goes."""

from forager.strategies.federation import client_memory
from forager.strategies.federation.client_memory import ClientMemory
from forager.strategies.federation.grids import NumberedKeys


def test_the_long_gone_are_forgotten(monkeypatch) -> None:
    monkeypatch.setattr(client_memory, "_MOST_GONE", 20)
    memory = ClientMemory()
    for number in range(500):
        here = ["stays", f"passes-{number}"]
        memory.learn(here[1], "loss", 1.0)
        memory.round_passed(here, chosen=here)
        if memory.crowded(connected=2):
            memory.forget(here)
    state = memory.state_dict()
    assert len(state["ages"]) < 40
    assert {"stays", "passes-499"} <= state["ages"].keys()
    assert len(state["picks"]) < 40
    assert len(state["answers"]["loss"]) < 40
    assert len(state["participated"]) < 40
    assert memory.picked(["stays", "passes-499", "passes-0"]).tolist() == [500, 1, 0]


def test_picks_survive_a_restart() -> None:
    memory, other = ClientMemory(), ClientMemory()
    memory.round_passed(["a", "b"], chosen=["a"])
    other.load_state_dict(memory.state_dict())
    assert other.picked(["a", "b"]).tolist() == [1, 0]


def test_a_round_in_which_several_cohorts_choose_passes_once() -> None:
    memory = ClientMemory()
    for server_round in (1, 2, 3):
        memory.begin(server_round)
        memory.round_passed(["a", "b"], chosen=["a"], server_round=server_round)
        memory.begin(server_round)
        assert memory.ages(["c", "d"]) == [0, server_round - 1]
        memory.round_passed(["c", "d"], chosen=["c"], server_round=server_round)
    assert memory.ages(["a", "b", "c", "d"]) == [0, 3, 0, 3]


def test_ages_of_numbered_clients_survive_a_restart() -> None:
    memory, other = ClientMemory(), ClientMemory()
    memory.round_passed(["a"], chosen=["a"])
    for chosen in ("1", "2"):
        memory.round_passed(NumberedKeys(range(4)), chosen=[chosen])
    other.load_state_dict(memory.state_dict())
    assert other.ages(["a", "0", "1", "2"]) == memory.ages(["a", "0", "1", "2"]) == [2, 2, 1, 0]
