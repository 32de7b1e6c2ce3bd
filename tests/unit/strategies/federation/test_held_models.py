"""What the server knows of the models that clients keep."""

import numpy as np
import pytest
from forager.strategies.federation import ledger
from forager.strategies.federation.ledger import HeldModels


def test_what_a_node_is_sent_counts_once_it_has_answered() -> None:
    held = HeldModels(every_message=True)
    held.sent(7, "first")
    assert (held.of(7), held.anybody()) == ("", False)
    held.learn([7], "first")
    assert (held.of(7), held.anybody()) == ("first", True)
    held.sent(7, "second")
    assert held.of(7) == "", "it may have the first or the second"
    held.learn([7], "second")
    assert held.of(7) == "second"
    held.learn([7, 8], "")
    assert not held.anybody()


def test_who_is_only_told_the_name_of_its_model_keeps_it_whatever_it_answers() -> None:
    held = HeldModels()
    held.learn([7], "first")
    held.sent(7, "first")
    assert held.of(7) == "first"


def model(number: int, size: int = 10) -> dict[str, np.ndarray]:
    return {"w": np.full(size, number, np.float32)}


@pytest.mark.parametrize(("size", "kept"), [(10, 6), (100, 5), (10_000, 3)])
def test_as_many_models_are_kept_as_fit(monkeypatch, size: int, kept: int) -> None:
    monkeypatch.setattr(ledger, "_FEWEST_STARTS", 3)
    monkeypatch.setattr(ledger, "_MOST_STARTS", 6)
    monkeypatch.setattr(ledger, "_BYTES_OF_STARTS", 2000)
    held = HeldModels(every_message=True)
    for number in range(9):
        held.keep(str(number), model(number, size))
    assert list(held.models) == [str(number) for number in range(9 - kept, 9)]


def test_a_model_that_is_used_again_is_new_again() -> None:
    held = HeldModels(every_message=True)
    for tag in ("a", "b", "a"):
        held.keep(tag, model(1))
    assert list(held.models) == ["b", "a"]


def test_nodes_that_come_and_go_do_not_fill_the_memory(monkeypatch) -> None:
    monkeypatch.setattr(ledger, "_MOST_HELD", 10)
    held = HeldModels(every_message=True)
    for node in range(100):
        held.learn([node], "tag")
        held.sent(node + 1000, "tag")
    assert len(held._held) <= 11
