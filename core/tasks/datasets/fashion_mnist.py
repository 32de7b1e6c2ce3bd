"""Fashion-MNIST: 70,000 images of clothes, 28 x 28 pixels, 10 classes (Xiao et al., 2017)."""

import gzip
import zlib
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ..errors import TaskError, one_line
from ..spec import TaskSpec
from .raw import RawData
from .storage import cache_folder

DEBIAN_FOLDER = Path("/usr/share/datasets/fashion-mnist")
"""Where Debian's package ``dataset-fashion-mnist`` puts its files."""

_FILES = {
    "x_train": "train-images-idx3-ubyte",
    "y_train": "train-labels-idx1-ubyte",
    "x_test": "t10k-images-idx3-ubyte",
    "y_test": "t10k-labels-idx1-ubyte",
}


def load(spec: TaskSpec) -> RawData:
    """Images from the folder ``path``, else Debian's package, else a download."""
    folder = Path(spec.path).expanduser() if spec.path else _usual_folder(spec)
    arrays = {name: read_idx(_find(folder, file)) for name, file in _FILES.items()}
    return RawData(**arrays, num_classes=10)  # type: ignore[arg-type]


def _usual_folder(spec: TaskSpec) -> Path:
    root = cache_folder(spec.cache_dir)
    downloaded = root / "FashionMNIST" / "raw"
    for folder in (DEBIAN_FOLDER, downloaded):
        if all(_candidates(folder, file) for file in _FILES.values()):
            return folder
    _download(root)
    return downloaded


def _download(root: Path) -> None:
    from ..torchvision_compat import torchvision  # slow to import, and only needed once per machine

    try:
        torchvision().datasets.FashionMNIST(str(root), download=True)
    except (OSError, RuntimeError) as error:
        raise TaskError(
            f"fashion-mnist cannot be downloaded ({one_line(error)}): connect to the network, "
            "install Debian's package dataset-fashion-mnist, or set path to a folder with "
            f"{', '.join(_FILES.values())} (.gz)"
        ) from error


def _candidates(folder: Path, name: str) -> list[Path]:
    return [path for path in (folder / f"{name}.gz", folder / name) if path.is_file()]


def _find(folder: Path, name: str) -> Path:
    found = _candidates(folder, name)
    if not found:
        raise TaskError(f"{folder}: lacks {name}.gz of Fashion-MNIST")
    return found[0]


def read_idx(path: Path) -> NDArray[np.uint8]:
    """Array in an IDX file of unsigned bytes, packed by gzip or not."""
    try:
        content = path.read_bytes()
        if path.suffix == ".gz":
            content = gzip.decompress(content)
        # two zero bytes, the type code of unsigned bytes, the number of axes, then their lengths
        if content[:3] != b"\x00\x00\x08":
            raise ValueError("it does not start like an IDX file of unsigned bytes")
        axes = content[3]
        shape = np.frombuffer(content, ">u4", count=axes, offset=4)
        values = np.frombuffer(content, np.uint8, offset=4 + 4 * axes)
        return values.reshape(shape.astype(np.int64))
    except (OSError, EOFError, ValueError, IndexError, zlib.error) as error:
        raise TaskError(f"{path}: cannot be read as an IDX file ({error})") from error
