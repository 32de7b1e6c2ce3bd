"""Attribute noise: corrupted inputs under their right labels (GCFL, section 6.4)."""

import numpy as np
from numpy.typing import NDArray

from ..errors import TaskError, unknown
from .corruptions import ANY_INPUT, CORRUPTIONS
from .noisy import NoiseSettings, Noisy, draw_affected


def parse_kinds(names: str) -> tuple[str, ...]:
    """Kinds named in a text, none for ``all``.

    Examples
    --------
    >>> parse_kinds("fog, frost"), parse_kinds("all")
    (('fog', 'frost'), ())
    """
    if names.strip() == "all":
        return ()
    kinds = tuple(name.strip() for name in names.split(","))
    for kind in kinds:
        if kind not in CORRUPTIONS:
            raise unknown("noise_kinds", kind, ["all", *CORRUPTIONS])
    return kinds


def corrupt(
    x: NDArray[np.float32],
    y: NDArray[np.int64],
    settings: NoiseSettings,
    rng: np.random.Generator,
) -> Noisy:
    """Corrupt ``int(n * rate)`` inputs, each by a kind drawn evenly from those allowed.

    Images are (channels, height, width) with 1 or 3 channels in [0, 1]. Other inputs take the
    kinds that act on single values, relative to the range of every feature.

    Raises
    ------
    TaskError
        If a kind was asked for that the inputs do not allow.
    """
    image = x.ndim == 4 and x.shape[1] in (1, 3)
    kinds = _fitting_kinds(settings.kinds, image, x.shape[1:])
    affected = draw_affected(len(y), settings.rate, rng)
    drawn = rng.integers(0, len(kinds), len(y))
    corrupted = x.copy()
    for number, kind in enumerate(kinds):
        chosen = np.flatnonzero(affected & (drawn == number))
        if len(chosen):
            corrupted[chosen] = _corrupt_by(kind, x[chosen], image, settings, rng)
    return Noisy(corrupted, y, y, ~affected)


def _fitting_kinds(asked: tuple[str, ...], image: bool, shape: tuple[int, ...]) -> tuple[str, ...]:
    fitting = tuple(CORRUPTIONS) if image else ANY_INPUT
    for kind in asked:
        if kind not in fitting:
            raise TaskError(
                f"noise_kinds = {kind!r} needs images with 1 or 3 channels, and samples have shape "
                f"{shape}: use {', '.join(fitting)}"
            )
    return asked or fitting


def _corrupt_by(
    kind: str,
    x: NDArray[np.float32],
    image: bool,
    settings: NoiseSettings,
    rng: np.random.Generator,
) -> NDArray[np.float32]:
    corruption = CORRUPTIONS[kind]
    if image:
        if x.min() < 0 or x.max() > 1:
            raise TaskError(
                f"noise = 'attribute' needs images in [0, 1], these go from {x.min():g} to "
                f"{x.max():g}: give uint8 images, or floats in [0, 1]"
            )
        return corruption(x, settings.severity, rng)
    low, high = settings.input_range()
    width = np.where(high > low, high - low, 1)
    scaled = ((x - low) / width).astype(np.float32)
    spoilt = corruption(scaled, settings.severity, rng) * width + low
    # A feature that never varies has no scale to be noisy on.
    return np.where(high > low, spoilt, x).astype(np.float32)
