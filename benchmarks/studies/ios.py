"""IOS: whether the indices of important parameters tell who is like whom."""

from ...core.config import Scalar
from ...tools.experiments.records import Cell
from ..ios import COMMON, SPLITS
from .study import Study

Settings = dict[str, Scalar]

TUNED: Settings = {"personalise.epochs": 2}
# One model, as it comes and as a user would have it
PLAIN: dict[str, Settings] = {
    "one model": {},
    "one model, tuned": TUNED,
    "fedyogi, tuned": {"aggregator": "fedyogi", **TUNED},
    "forager": {"strategy": "forager", "client-selector": "all"},
}
# Of the parameters: the paper's K of a CNN on Fashion-MNIST, and twice as much (table 6)
PAPER_K = {"K of 12.2 %": 0.122, "K of 25 %": 0.25}
PATHOLOGICAL = {"Patho(20 %)": 2, "Patho(30 %)": 3}  # classes per client, of 10


def _split(name: str) -> Settings:
    more: Settings = {}
    if name in PATHOLOGICAL:
        more = {"split.classes-per-client": PATHOLOGICAL[name]}
    return {**SPLITS[name], **more}


def alignment() -> Study:
    """Return how well each similarity agrees with the labels, after 2 and 8 local epochs."""
    common: Settings = {
        **{**COMMON, "study.runner": "alignment", "num-clients": 20, "num-server-rounds": 3},
    }
    own: Settings = {"task": "digits", "model": "mlp", "learning-rate": 0.05}
    cells = [
        Cell(
            f"{split}, {epochs} epochs",
            {**common, **own, **_split(split), "local-epochs": epochs},
        )
        for split in SPLITS
        for epochs in (2, 8)
    ]
    setting = (
        "20 clients, 3 rounds of FedAvg with all clients, 2 or 8 local epochs, batches of 32."
        " Digits with an MLP. The truth is the similarity of the clients' label histograms."
    )
    return Study("ios-alignment", "ios", setting, tuple(cells), range(20))


def cohorts() -> Study:
    """Return personalised training by each similarity: the paper's table 1."""
    common: Settings = {
        **{**COMMON, "study.runner": "cohorts", "num-clients": 20, "client-selector": "all"},
        **{"study.data": "fashion", "model": "mlp", "learning-rate": 0.02, "local-epochs": 8},
        **{"num-server-rounds": 15, "evaluate-every": 5, "ios.samples": 128},
        **{"data.client-test-share": 0.2, "fraction-evaluate": 1.0},
    }
    kinds = ("centred-overlap", "index-overlap", "signed-overlap", "cosine")
    cells = []
    for split in SPLITS:
        keys = {**common, **_split(split)}
        cells += [Cell(f"{split}: {name}", {**keys, **more}) for name, more in PLAIN.items()]
        cells += [
            Cell(f"{split}: {kind}", {**keys, "cohorts": "similarity", "similarity": kind})
            for kind in kinds
        ]
        paper: Settings = {"cohorts": "similarity", "similarity": "index-overlap"}
        cells += [
            Cell(f"{split}: {name}", {**keys, **paper, "ios.share": share, "ios.most": share})
            for name, share in PAPER_K.items()
        ]
        tuned: Settings = {"cohorts": "similarity", "similarity": "centred-overlap", **TUNED}
        cells.append(Cell(f"{split}: centred-overlap, tuned", {**keys, **tuned}))
    setting = (
        "6,000 images of Fashion-MNIST, 20 clients, all in every round, an MLP, 8 local epochs, 15"
        " rounds, clusters by affinity propagation. Accuracy on the clients' own held-out fifth."
    )
    primary = tuple(
        f"Dir(0.1): {name}"
        for name in (
            *("index-overlap", "cosine", "centred-overlap", "centred-overlap, tuned"),
            *("one model", "one model, tuned", "forager", *PAPER_K),
        )
    )
    return Study("ios-cohorts", "ios", setting, tuple(cells), primary=primary)


def studies() -> list[Study]:
    """Return the studies of this paper."""
    return [alignment(), cohorts()]
