"""Nine ways to corrupt inputs badly, for images of any size.

The kinds are nine of the common corruptions of Hendrycks and Dietterich, "Benchmarking Neural
Network Robustness to Common Corruptions and Perturbations", 2019, that GCFL uses, at the highest of
their five severities. Sizes of effects are relative to the image, so that 8 x 8 digits are hit as
hard as large photographs. All take float32 arrays in [0, 1], samples first, and return new ones.
"""

import io
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from ..errors import optional_packages

Textures = NDArray[np.float64]


def clouds(count: int, height: int, width: int, rng: np.random.Generator) -> Textures:
    """Cloudy textures: random values on ever finer grids, added with ever smaller weight."""
    total = np.zeros((count, height, width))
    cells, weight = 1, 1.0
    while cells < 2 * max(height, width):
        grid = rng.random((count, cells + 1, cells + 1))
        total += weight * (_interpolation(height, cells) @ grid @ _interpolation(width, cells).T)
        cells, weight = cells * 2, weight * 0.55
    return _stretched(total)


def ice(count: int, height: int, width: int, rng: np.random.Generator) -> Textures:
    """Icy textures, as `clouds`: thin bright veins, and a cover that thickens to the border."""
    veins = (1 - np.abs(2 * clouds(count, height, width, rng) - 1)) ** 3
    rows = np.abs(np.linspace(-1, 1, height))[:, None]
    columns = np.abs(np.linspace(-1, 1, width))[None]
    cover = clouds(count, height, width, rng) * np.maximum(rows, columns)
    return _stretched(0.6 * veins + 0.6 * cover)


def _interpolation(places: int, cells: int) -> Textures:
    """Matrix that reads values on a grid linearly at evenly spaced places."""
    position = (np.arange(places) + 0.5) / places * cells
    left = np.minimum(position.astype(np.int64), cells - 1)
    matrix = np.zeros((places, cells + 1))
    matrix[np.arange(places), left] = left + 1 - position
    matrix[np.arange(places), left + 1] = position - left
    return matrix


def _stretched(textures: Textures) -> Textures:
    low = textures.min(axis=(1, 2), keepdims=True)
    high = textures.max(axis=(1, 2), keepdims=True)
    stretched: Textures = (textures - low) / np.where(high > low, high - low, 1)
    return stretched


Floats = NDArray[np.float32]
Corruption = Callable[[Floats, np.random.Generator], Floats]


def gaussian_noise(x: Floats, rng: np.random.Generator) -> Floats:
    """Add normal noise to every value: a sensor in poor light."""
    deviation = 0.38
    return _clipped(x + rng.normal(0, deviation, x.shape))


def shot_noise(x: Floats, rng: np.random.Generator) -> Floats:
    """Count every value in photons, of which there are few (Poisson)."""
    photons = 3
    return _clipped(rng.poisson(np.clip(x, 0, 1) * photons) / photons)


def impulse_noise(x: Floats, rng: np.random.Generator) -> Floats:
    """Replace some values by the smallest or the largest one: salt and pepper."""
    share = 0.27
    draw = rng.random(x.shape)
    return _clipped(np.where(draw < share, draw < share / 2, x))


def frost(x: Floats, rng: np.random.Generator) -> Floats:
    """Look through a window with ice on it."""
    passes, glare = 0.6, 0.75
    texture = ice(len(x), x.shape[2], x.shape[3], rng)[:, None]
    tint = np.array([0.85, 0.95, 1.0] if x.shape[1] == 3 else [1.0])[:, None, None]
    return _clipped(passes * x + glare * texture * tint)


def fog(x: Floats, rng: np.random.Generator) -> Floats:
    """Lay light clouds over the image, keeping its brightest value."""
    density = 2.0
    brightest = x.max(axis=(1, 2, 3), keepdims=True)
    veil = clouds(len(x), x.shape[2], x.shape[3], rng)[:, None]
    dimmed = brightest / (brightest + density)
    return _clipped((x + density * veil) * np.where(brightest > 0, dimmed, 1))


def brightness(x: Floats, rng: np.random.Generator) -> Floats:
    """Raise the largest channel of every pixel, keeping hue and saturation."""
    raised = 0.5
    value = x.max(axis=1, keepdims=True)
    target = np.minimum(value + raised, 1)
    return _clipped(np.where(value > 0, x * (target / np.where(value > 0, value, 1)), target))


def elastic_transform(x: Floats, rng: np.random.Generator) -> Floats:
    """Stretch and shrink the image locally, by smooth random displacements."""
    from scipy.ndimage import gaussian_filter, map_coordinates

    count, channels, height, width = x.shape
    reach = 0.07 * np.array([height, width])
    smooth = (0, 0, 0.12 * height, 0.12 * width)
    fields = gaussian_filter(rng.normal(0, 1, (count, 2, height, width)), smooth, mode="wrap")
    fields *= reach[:, None, None] / (fields.std(axis=(2, 3), keepdims=True) + 1e-9)
    grid = np.stack(np.meshgrid(np.arange(height), np.arange(width), indexing="ij"))
    moved = [
        [
            map_coordinates(x[i, c], grid + fields[i], order=1, mode="reflect")
            for c in range(channels)
        ]
        for i in range(count)
    ]
    return _clipped(np.array(moved).reshape(x.shape))


def pixelate(x: Floats, rng: np.random.Generator) -> Floats:
    """Show the image in fewer, larger pixels."""
    share = 0.3
    down_rows, up_rows = _resampling(x.shape[2], share)
    down_columns, up_columns = _resampling(x.shape[3], share)
    small = down_rows @ x @ down_columns.T
    return _clipped(small[:, :, up_rows][:, :, :, up_columns])


def jpeg_compression(x: Floats, rng: np.random.Generator) -> Floats:
    """Store the image as a JPEG file of low quality and read it back."""
    quality = 5
    pixels = np.moveaxis(np.rint(x * 255).astype(np.uint8), 1, 3)
    stored = np.stack([_through_jpeg(image, quality) for image in pixels])
    return _clipped(np.moveaxis(stored, 3, 1) / 255)


CORRUPTIONS: dict[str, Corruption] = {
    "gaussian_noise": gaussian_noise,
    "shot_noise": shot_noise,
    "impulse_noise": impulse_noise,
    "frost": frost,
    "fog": fog,
    "brightness": brightness,
    "elastic_transform": elastic_transform,
    "pixelate": pixelate,
    "jpeg_compression": jpeg_compression,
}
ANY_INPUT = ("gaussian_noise", "shot_noise", "impulse_noise")
"""Kinds that act on single values and so need no image."""


def _clipped(x: NDArray[np.floating]) -> Floats:
    clipped: Floats = np.clip(x, 0, 1).astype(np.float32)
    return clipped


def _resampling(side: int, share: float) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Matrix that averages a side into fewer pixels, and the pixel that each place shows."""
    pixels = max(1, round(side * share))
    edges = np.linspace(0, side, pixels + 1)
    places = np.arange(side)
    start = np.maximum(places[None], edges[:-1, None])
    end = np.minimum(places[None] + 1, edges[1:, None])
    weights = np.maximum(end - start, 0) * pixels / side
    return weights, (places * pixels + pixels // 2) // side


def _through_jpeg(image: NDArray[np.uint8], quality: int) -> NDArray[np.uint8]:
    with optional_packages("noise = 'attribute'"):
        from PIL import Image

    grey = image.shape[2] == 1
    file = io.BytesIO()
    Image.fromarray(image[:, :, 0] if grey else image).save(file, "JPEG", quality=quality)
    with Image.open(file) as stored:
        return np.asarray(stored).reshape(image.shape)
