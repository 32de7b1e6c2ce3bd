from types import SimpleNamespace
from typing import Any, cast

import pytest
from forager.core.storage import tree
from forager.core.tasks.metrics import Metric
from forager.server_app.callbacks.standard import EarlyStopCallback
from forager.server_app.loop import Loop


def at(score: float | None, evaluated: int, server_round: int | None = None) -> Loop:
    return cast(
        Loop,
        SimpleNamespace(score=score, evaluated_round=evaluated, round=server_round or evaluated),
    )


def stops_at(stop: EarlyStopCallback, scores: list[float], first: int = 1) -> int | None:
    """The number of the evaluation that ends the run."""
    for number, score in enumerate(scores, start=first):
        reason = stop.on_round_end(at(score, number))
        if reason:
            assert reason == "early-stop"
            return number
    return None


@pytest.mark.parametrize(
    ("settings", "scores", "expected"),
    [
        ((0, 0.0), [0.5] * 20, None),
        ((3, 0.0), [0.1, 0.2, 0.2, 0.2, 0.2], 5),
        ((3, 0.0), [0.1, 0.2, 0.1, 0.1, 0.3, 0.1, 0.1, 0.1], 8),
        ((1, 0.0), [0.1, 0.1], 2),
        ((0, 0.8), [0.1, 0.79, 0.8], 3),
        ((0, 0.8), [0.9], 1),
        ((2, 0.9), [0.1, 0.2, 0.2, 0.2], 4),
        ((2, 0.0), [0.0, 0.0, 0.0], 3),
    ],
)
def test_when_it_stops(
    settings: tuple[int, float], scores: list[float], expected: int | None
) -> None:
    assert stops_at(EarlyStopCallback(*settings), scores) == expected


@pytest.mark.parametrize(
    ("settings", "scores", "expected"),
    [
        ((3, 0.0), [9.0, 8.0, 8.0, 8.5, 8.0], 5),
        ((0, 40.0), [90.0, 41.0, 40.0], 3),
        ((0, 40.0), [41.0, 90.0], None),
        ((0, -2.0), [0.5, -1.0, -2.5], 3),
    ],
)
def test_lower_is_better(
    settings: tuple[int, float], scores: list[float], expected: int | None
) -> None:
    mae = Metric("mae", higher_is_better=False)
    assert stops_at(EarlyStopCallback(*settings, mae), scores) == expected


def test_rounds_without_an_evaluation_do_not_count() -> None:
    stop = EarlyStopCallback(2, 0.0)
    assert stop.on_round_end(at(0.5, 1, 1)) is None
    for server_round in range(2, 10):
        assert stop.on_round_end(at(0.5, 1, server_round)) is None
    assert stop.on_round_end(at(0.5, 10)) is None
    assert stop.on_round_end(at(0.5, 20)) == "early-stop"


def test_nothing_is_known_before_the_first_evaluation() -> None:
    assert EarlyStopCallback(1, 0.1).on_round_end(at(None, -1, 1)) is None


@pytest.mark.parametrize("cut", range(5))
def test_state_continues(cut: int) -> None:
    scores = [0.1, 0.3, 0.2, 0.25, 0.28, 0.3]
    whole = stops_at(EarlyStopCallback(4, 0.0), scores)
    first = EarlyStopCallback(4, 0.0)
    assert stops_at(first, scores[:cut]) is None
    state: dict[str, Any] = tree.from_bytes(tree.to_bytes(first.state_dict(), "t"), "t")
    rest = EarlyStopCallback(4, 0.0)
    rest.load_state_dict(state)
    assert stops_at(rest, scores[cut:], first=cut + 1) == whole == 6
