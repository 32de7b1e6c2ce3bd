import numpy as np
import pytest
from forager.core.storage import tree
from forager.selectors.stream_selectors.ode import GlobalGradient, RunningGradient, data_values

RNG = np.random.default_rng(0)


def test_values_are_projections_of_any_shape() -> None:
    gradients, target = RNG.normal(size=(7, 3, 4)), RNG.normal(size=(3, 4))
    expected = [float((gradient * target).sum()) for gradient in gradients]
    assert data_values(gradients, target) == pytest.approx(expected)
    lengths = np.linalg.norm(gradients.reshape(7, 12), axis=1)
    normal = data_values(gradients, target, normalize=True)
    assert normal == pytest.approx(np.array(expected) / lengths)
    assert data_values(gradients, 0.0).tolist() == [0.0] * 7
    assert data_values(np.zeros((2, 3)), np.ones(3), normalize=True).tolist() == [0, 0]
    assert np.isnan(data_values([[np.nan, 1.0]], [0.0, 1.0])).all()
    assert data_values(np.zeros((0, 3)), np.ones(3)).shape == (0,)
    with pytest.raises(ValueError, match="direction: shape"):
        data_values(gradients, np.ones(12))


def test_the_running_mean_is_that_of_all_samples_however_they_come() -> None:
    gradients = RNG.normal(size=(20, 6))
    one_by_one, in_parts = RunningGradient(), RunningGradient()
    for gradient in gradients:
        one_by_one.update(gradient)
    for part in (gradients[:1], gradients[1:9], gradients[9:]):
        in_parts.update(part.mean(axis=0), count=len(part))
    assert one_by_one.mean == pytest.approx(gradients.mean(axis=0))
    assert in_parts.mean == pytest.approx(gradients.mean(axis=0))
    assert one_by_one.count == in_parts.count == 20


def test_a_report_starts_anew_and_is_repeated_if_nothing_came() -> None:
    running = RunningGradient()
    assert running.mean.shape == running.report().shape == ()
    running.update(np.array([2.0, 4.0]))
    assert running.report().tolist() == running.report().tolist() == [2.0, 4.0]
    running.update(np.array([1.0, 1.0]))
    assert running.mean.tolist() == [1.0, 1.0]


def test_a_bad_gradient_leaves_the_mean_alone() -> None:
    running = RunningGradient()
    running.update([1.0, 3.0])
    for bad, message in (([np.nan, 0.0], "finite"), ([1.0], "shape"), ([np.inf, 0.0], "finite")):
        with pytest.raises(ValueError, match=f"gradient: expected .*{message}"):
            running.update(bad)
    with pytest.raises(ValueError, match="count: expected 1 or more, got 0"):
        running.update([1.0, 1.0], count=0)
    assert running.mean.tolist() == [1.0, 3.0]


def test_what_is_handed_out_cannot_change_the_state() -> None:
    running, server = RunningGradient(), GlobalGradient({"a": 1.0})
    gradient = np.array([1.0, 2.0])
    running.update(gradient)
    server.report({"a": gradient})
    gradient[:] = running.mean[:] = server.estimate[:] = 99.0
    assert running.mean.tolist() == server.estimate.tolist() == [1.0, 2.0]


def test_the_global_estimate_is_the_weighted_mean_of_everyones_last_report() -> None:
    shares = {"a": 2.0, "b": 1.0, "c": 5.0}
    server, last = GlobalGradient(shares), {}
    for _ in range(300):
        part = {c: RNG.normal(size=4) for c in shares if RNG.random() < 0.5}
        server.report(part)
        last |= part
        weight = sum(shares[c] for c in last)
        expected = sum(shares[c] * g for c, g in last.items())
        if last:
            assert server.estimate == pytest.approx(expected / weight, abs=1e-12)


def test_participants_only_forgets_the_others() -> None:
    server = GlobalGradient([1.0, 3.0, 4.0, 0.0], mode="participants")
    assert server.estimate.tolist() == 0.0
    server.report({0: [4.0, 0.0], 1: [0.0, 4.0]})
    assert server.estimate.tolist() == [1.0, 3.0]
    server.report({})
    server.report({3: [9.0, 9.0]})  # of no weight
    assert server.estimate.tolist() == [1.0, 3.0]
    server.report({2: [5.0, 5.0]})
    assert server.estimate.tolist() == [5.0, 5.0]


@pytest.mark.parametrize("mode", ["incremental", "participants"])
def test_a_client_where_nothing_arrived_reports_nothing(mode: str) -> None:
    server = GlobalGradient({"a": 1.0, "b": 1.0}, mode)
    server.report({"a": RunningGradient().report()})
    assert server.estimate.shape == ()
    server.report({"a": RunningGradient().report(), "b": [2.0, 6.0]})
    server.report({"a": RunningGradient().report()})
    assert server.estimate.tolist() == [2.0, 6.0]


def test_shares_may_change_and_clients_may_leave() -> None:
    server = GlobalGradient({"a": 1.0, "b": 1.0})
    server.report({"a": [4.0], "b": [0.0]})
    server.reshare({"a": 1.0, "b": 3.0, "new": 9.0})
    assert server.estimate.tolist() == [1.0]
    server.reshare({"b": 1.0})
    assert server.estimate.tolist() == [0.0]
    with pytest.raises(ValueError, match="client 'a' has no share"):
        server.report({"a": [1.0]})


@pytest.mark.parametrize(
    ("reports", "message"),
    [
        ({"a": [1.0, 1.0], "b": [np.nan, 0.0]}, "client 'b' reports numbers that are not finite"),
        ({"a": [1.0, 1.0], "x": [1.0, 0.0]}, "client 'x' has no share"),
        ({"a": [1.0, 1.0], "b": [1.0]}, "client 'b': expected shape"),
    ],
)
def test_a_bad_report_changes_nothing(reports: dict[str, list[float]], message: str) -> None:
    server = GlobalGradient({"a": 1.0, "b": 1.0})
    server.report({"b": [2.0, 2.0]})
    with pytest.raises(ValueError, match=message):
        server.report(reports)
    assert server.estimate.tolist() == [2.0, 2.0]


def test_options_are_checked() -> None:
    with pytest.raises(ValueError, match="mode: expected one of incremental, participants"):
        GlobalGradient({}, mode="exact")
    with pytest.raises(ValueError, match="shares: client 'a': expected 0 or more, got -1"):
        GlobalGradient({"a": -1.0})


@pytest.mark.parametrize("mode", ["incremental", "participants"])
def test_state_survives_a_save(mode: str) -> None:
    server, running = GlobalGradient({"a": 1.0, "b": 2.0}, mode), RunningGradient()
    server.report({"a": np.ones((2, 3)), "b": np.zeros((2, 3))})
    running.update([1.0])
    running.report()
    running.update([3.0])
    saved = tree.to_bytes({"s": server.state_dict(), "r": running.state_dict()}, "t")
    other, again = GlobalGradient({}, mode), RunningGradient()
    state = tree.from_bytes(saved, "t")
    other.load_state_dict(state["s"])
    again.load_state_dict(state["r"])
    for one in (server, other):
        one.report({"a": np.full((2, 3), 5.0)})
    assert other.estimate.tolist() == server.estimate.tolist()
    assert again.report().tolist() == [3.0]
    fresh = RunningGradient()
    fresh.load_state_dict(tree.from_bytes(tree.to_bytes(RunningGradient().state_dict(), "t"), "t"))
    assert fresh.count == 0
