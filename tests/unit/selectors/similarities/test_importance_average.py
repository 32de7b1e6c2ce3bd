import numpy as np
import pytest
from forager.selectors.similarities.importance_average import ImportanceAverage, averaged
from forager.selectors.similarities.index_overlap import top_k_support


def test_order_is_the_one_of_the_bias_corrected_average() -> None:
    rng = np.random.default_rng(0)
    estimates = rng.random((6, 200))
    average = ImportanceAverage(beta=0.8)
    for estimate in estimates:
        value = average.update(estimate)
    weights = 0.2 * 0.8 ** np.arange(6)[::-1]
    np.testing.assert_allclose(value, weights @ estimates, rtol=1e-5)
    corrected = weights @ estimates / (1 - 0.8**6)
    np.testing.assert_array_equal(top_k_support(value, 20), top_k_support(corrected, 20))


def test_averaging_lowers_the_variance_as_equation_3_says() -> None:
    rng = np.random.default_rng(0)
    average = ImportanceAverage(beta=0.8)
    for _ in range(60):
        value = average.update(1 + 0.1 * rng.standard_normal(20_000))
    assert np.std(value) == pytest.approx(0.1 * np.sqrt(0.2 / 1.8), rel=0.05)


def test_beta_zero_keeps_only_the_last_round() -> None:
    average = ImportanceAverage(beta=0.0)
    average.update([1.0, 2.0])
    assert average.update([5.0, 4.0]).tolist() == [5.0, 4.0]


def test_state_survives_and_continues_identically() -> None:
    rng = np.random.default_rng(0)
    average, again = ImportanceAverage(0.5), ImportanceAverage(0.5)
    again.load_state_dict(average.state_dict())  # before the first round
    average.update(rng.random(10))
    again.load_state_dict(average.state_dict())
    following = rng.random(10)
    before = following.copy()
    np.testing.assert_array_equal(average.update(following), again.update(following))
    np.testing.assert_array_equal(following, before)
    assert (average.rounds, again.rounds) == (2, 2)


def test_bad_arguments_are_refused() -> None:
    for beta in (-0.1, 1.0):
        with pytest.raises(ValueError, match="beta"):
            ImportanceAverage(beta)
    average = ImportanceAverage()
    with pytest.raises(ValueError, match="value"):
        _ = average.value
    average.update([1.0, 2.0])
    with pytest.raises(ValueError, match="expected 2 parameters as before, got 3"):
        average.update([1.0, 2.0, 3.0])
    with pytest.raises(ValueError, match="finite"):
        average.update([1.0, np.inf])


def test_rows_are_averaged_as_each_client_would() -> None:
    rng = np.random.default_rng(3)
    rounds = rng.random((4, 5, 30)).astype(np.float32)
    together = np.zeros((5, 30), dtype=np.float32)
    clients = [ImportanceAverage(0.8) for _ in range(5)]
    for estimates in rounds:
        together = averaged(together, estimates, 0.8)
        for client, estimate in zip(clients, estimates, strict=True):
            client.update(estimate)
    np.testing.assert_array_equal(together, [client.value for client in clients])
