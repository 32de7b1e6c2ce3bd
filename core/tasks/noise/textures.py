"""Random textures that corruptions lay over images: clouds and ice, for any size."""

import numpy as np
from numpy.typing import NDArray

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
