import numpy as np
import pytest
from forager.core.tasks import TaskError
from forager.core.tasks.noise import NOISES, NoiseSettings
from forager.core.tasks.noise.corruptions import CORRUPTIONS, clouds, ice


def settings(rate, num_classes=10, low=0.0, high=1.0):
    bounds = np.float32(low), np.float32(high)
    return NoiseSettings(rate, num_classes, lambda: bounds)


def labels(count=200):
    return np.random.default_rng(3).integers(0, 10, count)


def images(count=200, channels=1, side=8):
    """Smooth images with a bright bar, because noise on noise is hard to see."""
    rng = np.random.default_rng(4)
    ramp = np.linspace(0.1, 0.7, side, dtype=np.float32)
    x = np.broadcast_to(ramp, (count, channels, side, side)).copy()
    for image in x:
        image[:, :, rng.integers(0, side)] = 0.95
        image[:, rng.integers(0, side)] *= 0.3
    return x


def corrupt(name, x, y, chosen, seed=0):
    return NOISES[name](x, y, chosen, np.random.default_rng(seed))


@pytest.mark.parametrize(
    ("count", "rate", "flips"),
    [(200, 0.4, 80), (7, 0.5, 3), (1, 0.9, 0), (0, 0.4, 0), (5, 1.0, 5)],
)
def test_closed_set_flips_exactly(count, rate, flips):
    x, y = images(count), labels(count)
    noisy = corrupt("closed-set", x, y, settings(rate))
    assert (noisy.y != y).sum() == flips
    assert np.array_equal(noisy.clean, noisy.y == y)
    assert np.array_equal(noisy.true_labels, y)
    assert np.array_equal(noisy.x, x)


def test_closed_set_labels_are_even_among_the_others():
    y = np.full(9000, 4)
    flipped = corrupt("closed-set", images(1), y, settings(1.0)).y
    counts = np.bincount(flipped, minlength=10)
    assert counts[4] == 0
    assert np.delete(counts, 4) == pytest.approx(1000, rel=0.15)


@pytest.mark.parametrize("rate", [0.0, 0.2, 0.4])
def test_open_set_reaches_the_rate_and_keeps_the_inputs(rate):
    x, y = images(), labels()
    x[:, 0, 0, 0] = np.linspace(0, 1, len(x))  # tells the samples apart
    noisy = corrupt("open-set", x, y, settings(rate))
    assert 1 - noisy.clean.mean() == pytest.approx(rate, abs=0.01)
    assert noisy.y.max() < 5
    origin = np.searchsorted(x[:, 0, 0, 0], noisy.x[:, 0, 0, 0])
    assert np.array_equal(noisy.x, x[origin])
    assert np.array_equal(noisy.true_labels, y[origin])
    assert np.array_equal(noisy.y[noisy.clean], y[origin][noisy.clean])
    assert (noisy.true_labels[~noisy.clean] >= 5).all()
    assert noisy.clean.sum() == (y < 5).sum()


@pytest.mark.parametrize("share", [0.2, 0.4, 0.6])
def test_open_set_takes_a_share_of_the_classes_out(share):
    """Section 6.4 of GCFL: n % of the labels are irrelevant, their samples stay mislabelled."""
    x, y = images(), labels()
    bounds = np.float32(0), np.float32(1)
    chosen = NoiseSettings(1.0, 10, lambda: bounds, share)
    noisy = corrupt("open-set", x, y, chosen)
    left = [label for label in range(10) if label < 10 * (1 - share) - 1e-9]
    assert set(noisy.y.tolist()) <= set(left)
    assert len(noisy.y) == len(y)
    assert (~noisy.clean).sum() == sum(label not in left for label in y.tolist())


def test_open_set_without_inside_or_outside_samples():
    inside = corrupt("open-set", images(4), np.array([0, 1, 2, 3]), settings(0.4))
    assert inside.clean.all()
    assert len(inside.y) == 4
    outside = corrupt("open-set", images(4), np.array([6, 7, 8, 9]), settings(0.4))
    assert len(outside.y) == len(outside.x) == 0


def test_attribute_noise_touches_exactly_the_affected_inputs():
    x, y = images(), labels()
    noisy = corrupt("attribute", x, y, settings(0.3))
    changed = (noisy.x != x).any(axis=(1, 2, 3))
    assert np.array_equal(changed, ~noisy.clean)
    assert changed.sum() == 60
    assert np.array_equal(noisy.y, y)


@pytest.mark.parametrize("name", ["none", "closed-set", "attribute"])
def test_rate_zero_changes_nothing(name):
    x, y = images(), labels()
    noisy = corrupt(name, x, y, settings(0.0))
    assert np.array_equal(noisy.x, x)
    assert np.array_equal(noisy.y, y)
    assert noisy.clean.all()


@pytest.mark.parametrize("name", NOISES)
def test_noise_repeats_and_leaves_its_inputs_alone(name):
    x, y = images(), labels()
    before_x, before_y = x.copy(), y.copy()
    first, second = (corrupt(name, x, y, settings(0.4)) for _ in range(2))
    other = corrupt(name, x, y, settings(0.4), seed=1)
    assert np.array_equal(first.x, second.x)
    assert np.array_equal(first.y, second.y)
    same = np.array_equal(first.x, other.x) and np.array_equal(first.y, other.y)
    assert same == (name == "none")
    assert np.array_equal(x, before_x)
    assert np.array_equal(y, before_y)


@pytest.mark.parametrize("kind", CORRUPTIONS)
@pytest.mark.parametrize(("channels", "side"), [(1, 8), (1, 28), (3, 32), (3, 17)])
def test_corruptions_spoil_images_of_any_size(kind, channels, side):
    x = images(12, channels, side)
    spoilt = CORRUPTIONS[kind](x, np.random.default_rng(0))
    assert spoilt.shape == x.shape
    assert spoilt.dtype == np.float32
    assert spoilt.min() >= 0
    assert spoilt.max() <= 1
    assert 0.01 < np.abs(spoilt - x).mean() < 0.6


@pytest.mark.parametrize("kind", CORRUPTIONS)
@pytest.mark.parametrize("shape", [(2, 1, 1, 1), (2, 3, 5, 9), (1, 1, 2, 2)])
def test_corruptions_stand_odd_shapes_and_flat_images(kind, shape):
    for value in (0.0, 1.0):
        x = np.full(shape, value, dtype=np.float32)
        spoilt = CORRUPTIONS[kind](x, np.random.default_rng(0))
        assert spoilt.shape == shape
        assert np.isfinite(spoilt).all()


def test_brightness_keeps_hue():
    x = np.array([0.4, 0.2, 0.1], dtype=np.float32).reshape(1, 3, 1, 1)
    spoilt = CORRUPTIONS["brightness"](x, np.random.default_rng(0))
    assert spoilt.reshape(3) == pytest.approx([0.9, 0.45, 0.225])


def test_pixelate_averages_blocks():
    x = np.arange(64, dtype=np.float32).reshape(1, 1, 8, 8) / 64
    spoilt = CORRUPTIONS["pixelate"](x, np.random.default_rng(0))
    assert spoilt[0, 0, :4, :4] == pytest.approx(x[0, 0, :4, :4].mean())
    assert spoilt.mean() == pytest.approx(x.mean())


@pytest.mark.parametrize("texture", [clouds, ice])
def test_textures_differ_and_fill_their_range(texture):
    drawn = texture(3, 12, 20, np.random.default_rng(0))
    assert drawn.shape == (3, 12, 20)
    assert drawn.min(axis=(1, 2)) == pytest.approx(0)
    assert drawn.max(axis=(1, 2)) == pytest.approx(1)
    assert not np.allclose(drawn[0], drawn[1])


def test_signals_take_noise_on_their_own_scale():
    x = np.random.default_rng(0).uniform(-50, 150, (300, 9, 16)).astype(np.float32)
    noisy = corrupt("attribute", x, labels(300), settings(1.0, low=-50, high=150))
    moved = np.abs(noisy.x - x).mean(axis=(1, 2))
    assert moved.min() > 2
    assert noisy.x.min() >= -50.01
    assert noisy.x.max() <= 150.01


def test_constant_features_stay_constant():
    x = np.full((10, 4), 7, dtype=np.float32)
    noisy = corrupt("attribute", x, labels(10), settings(1.0, low=7, high=7))
    assert np.array_equal(noisy.x, x)


def test_images_out_of_range_are_refused():
    with pytest.raises(TaskError, match=r"images in \[0, 1\]"):
        corrupt("attribute", images() * 255, labels(), settings(0.5))


def test_closed_set_needs_two_classes():
    with pytest.raises(TaskError, match="at least 2 classes"):
        corrupt("closed-set", images(3), np.zeros(3, dtype=np.int64), settings(0.5, 1))
