"""Features of a data set by a frozen backbone, computed once for all partitions and seeds.

A client with a frozen backbone computes the features of its own data. A sweep over seeds would do
that again for every partition, though the features of an image are the same whoever holds it: so
benchmarks compute them once, and train the head on them as a task of its own
(``task='npz'``, ``model='softmax'``).
"""

import argparse
from pathlib import Path

import numpy as np
import torch

from ..core.storage.files import replacing
from ..core.tasks import TaskSpec
from ..core.tasks.backbones import features
from ..core.tasks.datasets import load_raw, rows


def features_file(spec: TaskSpec, backbone: str, target: Path) -> Path:
    """Write the features of a whole data set to an ``.npz`` file, if it is not there yet."""
    if target.exists():
        return target
    raw = load_raw(spec)
    arrays = {}
    for part, x, y in (("train", raw.x_train, raw.y_train), ("test", raw.x_test, raw.y_test)):
        images = torch.from_numpy(rows(x, np.arange(len(y))))
        arrays[f"x_{part}"] = features(backbone, images, str(target.parent)).numpy()
        arrays[f"y_{part}"] = y
    with replacing(target) as file:
        np.savez(file, allow_pickle=False, **arrays)
    return target


def main() -> None:
    """Compute features from the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("task")
    parser.add_argument("--path", default="", help="file or folder of the data set")
    parser.add_argument("--backbone", default="efficientnet-lite0")
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    spec = TaskSpec(task=arguments.task, path=arguments.path)
    print(features_file(spec, arguments.backbone, arguments.out))


if __name__ == "__main__":
    main()
