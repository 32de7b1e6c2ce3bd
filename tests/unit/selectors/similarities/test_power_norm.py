from typing import Any

import numpy as np
import pytest
from forager.selectors.similarities.power_norm import Reference
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from numpy.typing import ArrayLike

vectors = arrays(np.float64, 6, elements=st.floats(-10, 10).map(lambda x: round(x, 3)))


def power_cosine(u: ArrayLike, v: ArrayLike, p: float = 4.0, form: str = "unit") -> Any:
    reference = Reference(u, p, form)
    return reference.similarities(v) if np.ndim(v) == 2 else reference.similarity(v)


def cosine(u: np.ndarray, v: np.ndarray) -> float:
    return float(u @ v / np.sqrt((u @ u) * (v @ v)))


def printed(u: np.ndarray, v: np.ndarray, p: float) -> float:
    """Eq. 8 and 9, letter by letter."""

    def norm(x: np.ndarray) -> float:
        return float(np.sum(np.abs(x) ** p) ** (1 / p))

    return 0.25 * (norm(u + v) - norm(u - v)) / (norm(u) * norm(v))


@pytest.fixture
def pair() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    return rng.standard_t(3, 50), rng.standard_t(3, 50)


@given(u=vectors, v=vectors, p=st.sampled_from([1.0, 1.5, 2.0, 3.0, 4.0, 7.0, np.inf]))
def test_is_between_minus_one_and_one_and_symmetric(u: np.ndarray, v: np.ndarray, p: float) -> None:
    value = power_cosine(u, v, p)
    assert -1 <= value <= 1
    assert value == pytest.approx(power_cosine(v, u, p))
    assert value == pytest.approx(-power_cosine(u, -v, p))


@pytest.mark.parametrize("p", [1.0, 2.0, 3.0, 4.0, 6.5, np.inf])
def test_same_and_opposite_directions(pair: tuple[np.ndarray, np.ndarray], p: float) -> None:
    u, _ = pair
    assert power_cosine(u, 3 * u, p) == pytest.approx(1)
    assert power_cosine(u, -0.1 * u, p) == pytest.approx(-1)


def test_p_of_two_is_the_cosine(pair: tuple[np.ndarray, np.ndarray]) -> None:
    assert power_cosine(*pair, p=2) == pytest.approx(cosine(*pair))
    assert power_cosine(*pair, p=2.0000001) == pytest.approx(cosine(*pair), rel=1e-4)


def test_p_of_four_by_the_definition(pair: tuple[np.ndarray, np.ndarray]) -> None:
    u, v = (x / np.sum(x**4) ** 0.25 for x in pair)
    expected = (np.sum((u + v) ** 4) ** 0.5 - np.sum((u - v) ** 4) ** 0.5) / 4
    assert power_cosine(*pair) == pytest.approx(expected)
    assert power_cosine(*pair, p=4.0000001) == pytest.approx(expected, rel=1e-4)


def test_neither_scale_matters(pair: tuple[np.ndarray, np.ndarray]) -> None:
    u, v = pair
    assert power_cosine(1e-5 * u, 1e7 * v) == pytest.approx(power_cosine(u, v))


def test_large_entries_count_for_more_than_with_the_cosine() -> None:
    u, v = np.array([5.0, 1, 1, 1]), np.array([5.0, -1, -1, -1])
    assert power_cosine(u, v) > cosine(u, v)


@pytest.mark.parametrize("p", [2.0, 3.0, 4.0])
def test_the_printed_form_is_the_printed_form(
    pair: tuple[np.ndarray, np.ndarray], p: float
) -> None:
    u, v = pair
    assert power_cosine(u, v, p, form="printed") == pytest.approx(printed(u, v, p))
    assert power_cosine(u, 20 * v, p, form="printed") == pytest.approx(printed(u, 20 * v, p))


def test_the_printed_form_of_a_vector_with_itself_depends_on_its_norm() -> None:
    u = np.array([1.0, 2.0, 3.0])
    norm = np.sum(u**4) ** 0.25
    assert power_cosine(u, u, form="printed") == pytest.approx(1 / (2 * norm))


@pytest.mark.parametrize("form", ["unit", "printed"])
@pytest.mark.parametrize("size", [9, 650, 40_000])
def test_rows_are_compared_as_if_one_by_one(form: str, size: int) -> None:
    rng = np.random.default_rng(1)
    u, rows = rng.normal(size=size), rng.normal(size=(105, size)).astype(np.float32)
    rows *= np.logspace(-3, 3, 105, dtype=np.float32)[:, None]
    reference = Reference(u, form=form)
    together = reference.similarities(rows)
    assert together.tolist() == [reference.similarity(row) for row in rows]
    assert power_cosine(u, rows, form=form).tolist() == together.tolist()
    assert power_cosine(u, rows[:0], form=form).shape == (0,)


@pytest.mark.parametrize("scale", [1e30, 1e-30, 1e-40])
def test_huge_and_tiny_float32(pair: tuple[np.ndarray, np.ndarray], scale: float) -> None:
    u, v = (x.astype(np.float32) for x in pair)
    for left, right in ((u * np.float32(scale), v), (u, v * np.float32(scale))):
        assert power_cosine(left, right) == pytest.approx(power_cosine(u, v), rel=1e-4)
        assert np.isfinite(power_cosine(left, right, form="printed"))
    both = (u * np.float32(scale), v * np.float32(scale))
    assert power_cosine(*both) == pytest.approx(power_cosine(u, v), rel=1e-4)
    expected = power_cosine(u, v, form="printed") / scale
    assert power_cosine(*both, form="printed") == pytest.approx(expected, rel=1e-4)


def test_extreme_float64() -> None:
    u, v = np.array([3.0, 4.0, -1.0]), np.array([1.0, 4.0, 2.0])
    for scale in (1e300, 1e-300):
        assert power_cosine(u * scale, v * scale) == pytest.approx(power_cosine(u, v))


@pytest.mark.parametrize("form", ["unit", "printed"])
@pytest.mark.parametrize("p", [2.0, 4.0, 5.0, np.inf])
def test_zero_scores_zero(form: str, p: float) -> None:
    zero, u = np.zeros(4, dtype=np.float32), np.ones(4, dtype=np.float32)
    for left, right in ((zero, u), (u, zero), (zero, zero)):
        assert power_cosine(left, right, p, form) == 0.0


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("form", ["unit", "printed"])
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_what_is_not_finite_is_unknown_and_spoils_only_its_row(form: str, bad: float) -> None:
    u, rows = np.ones(3), np.array([[1.0, 2, 3], [1, bad, 3], [0, 0, 0]])
    values = power_cosine(u, rows, form=form)
    assert np.isnan(values).tolist() == [False, True, False]
    assert np.isnan(power_cosine(rows[1], rows[[0, 2]], form=form)).all()


def test_inputs_are_left_alone(pair: tuple[np.ndarray, np.ndarray]) -> None:
    before = [x.copy() for x in pair]
    power_cosine(*pair)
    np.testing.assert_equal(list(pair), before)


def test_result_types() -> None:
    assert type(power_cosine([1], [2])) is float
    assert power_cosine([], []) == 0.0


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        (([1, 2], [1, 2], 0.5), "p"),
        (([1, 2], [1, 2], np.nan), "p"),
        (([1, 2], [1, 2], 4, "square"), "form"),
        (([1, 2], [1, 2, 3]), "v"),
        (([1, 2], np.ones((2, 2, 2))), "v"),
        (([[1, 2]], [1, 2]), "u"),
    ],
)
def test_errors_name_the_argument(arguments: tuple, name: str) -> None:
    with pytest.raises(ValueError, match=rf"^{name}: expected"):
        power_cosine(*arguments)
