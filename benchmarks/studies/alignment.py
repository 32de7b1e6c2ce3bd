"""A runner that trains clients together and judges every similarity of them."""

from pathlib import Path

from ...core.config import Scalar, read_config
from ...core.methods.ios import Ios
from ...tools.engine.local import LocalResult
from ..ios_alignment import alignment, collect, matrices

# What the page shows, by the names of `ios_alignment.matrices`
SHOWN = {
    "paper": "IOS, K*, during",
    "after": "IOS, K*",
    "index": "IOS, 5 %, received, centred",
    "signed": "signed, 5 %",
    "cosine": "cosine of updates",
    "euclidean": "Euclidean of updates",
}
SCORES = ("R@8", "tau", "JS", "silhouette")


def run_alignment(overrides: dict[str, Scalar], *, quiet: bool = True) -> LocalResult:
    """Return one row with columns such as ``R@8 of signed`` and ``bytes of signed``."""
    folder = Path(str(overrides.pop("output-dir", ".")))
    config = read_config(overrides)
    found = collect(config, config.num_clients, config.num_server_rounds)
    made = matrices(found, config[Ios].coverage, config[Ios].most)
    row: dict[str, float] = {"round": config.num_server_rounds}
    for short, name in SHOWN.items():
        matrix, sent = made[name]
        scores = alignment(matrix, found.histograms)
        row |= {f"{score} of {short}": scores[score] for score in SCORES if score in scores}
        row[f"bytes of {short}"] = sent["bytes"]
    return LocalResult(folder, "completed", [row])
