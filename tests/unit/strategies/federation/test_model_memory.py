"""Models of many clients take no more memory than is allowed, and are as good as exact."""

import numpy as np
from forager.core.storage import tree
from forager.strategies.layers.neighbours import ModelMemory
from forager.strategies.similarities.client_similarity import LONGEST, Cosine


def model(seed: int, size: int = 1000) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    common = np.random.default_rng(0).normal(size=size)
    return {
        "w": (common + 0.01 * rng.normal(size=size)).astype(np.float32),
        "count": np.array(seed, dtype=np.int64),
    }


def test_a_model_comes_back_within_a_thousandth_of_its_largest_change() -> None:
    memory = ModelMemory()
    for seed in range(5):
        memory.keep(str(seed), model(seed))
    for seed in range(5):
        found, change = memory.get(str(seed)), np.abs(model(seed)["w"] - model(0)["w"]).max()
        assert found is not None
        assert np.abs(found["w"] - model(seed)["w"]).max() <= 1e-3 * change + 1e-6
        assert found["w"].dtype == np.float32
        assert int(found["count"]) == seed


def test_memory_is_bounded_and_the_oldest_go_first() -> None:
    memory = ModelMemory(most_bytes=3 * 2008)
    for seed in (0, 1, 2, 0, 3):
        memory.keep(str(seed), model(seed))
    assert list(memory) == ["2", "0", "3"]
    assert memory.bytes == 3 * 2008
    assert memory.get("1") is None
    fresh = ModelMemory(most_bytes=3 * 2008)
    fresh.load_state_dict(tree.from_bytes(tree.to_bytes(memory.state_dict(), "test"), "test"))
    assert list(fresh) == list(memory)
    assert fresh.bytes == memory.bytes
    np.testing.assert_equal(fresh.get("3"), memory.get("3"))


def test_one_model_is_kept_however_large_and_no_change_is_none() -> None:
    memory = ModelMemory(most_bytes=1)
    memory.keep("a", model(1))
    memory.keep("a", model(1))
    np.testing.assert_equal(memory.get("a"), model(1))


def test_long_updates_are_compared_by_sketches_that_keep_their_cosines() -> None:
    rng = np.random.default_rng(0)
    first, second = rng.normal(size=(2, 10 * LONGEST)).astype(np.float32)
    updates = {"a": first, "b": 0.8 * first + 0.6 * second, "c": second}
    cosine = Cosine()
    cosine.told = {key: cosine._sketch(update) for key, update in updates.items()}
    assert all(told.nbytes == 4 * LONGEST for told in cosine.told.values())
    found = cosine.matrix(list("abc"))
    np.testing.assert_allclose(found, [[1, 0.8, 0], [0.8, 1, 0.6], [0, 0.6, 1]], atol=0.04)
