"""IOS: similarities of clients by important indices or by values; cohorts and neighbours."""

from dataclasses import replace
from typing import Annotated, Any, Literal

from pydantic import Field

from .base import AtLeastOne, Count, Method, Settings, Share, SomeShare, key
from .cohort import CohortMethod

PAPER = "Index-Overlap Similarity (IOS)"
CHANGE_KEYS = ("share", "most")
SUPPORT_KEYS = (*CHANGE_KEYS, "at", "samples")
PAPER_KEYS = (*SUPPORT_KEYS, "coverage", "stability", "resamples")
PAST = 0.8  # weight of earlier rounds in the average importance (beta)
HASHES, BANDS = 128, 32  # of a signature; clients that share a whole band count as alike


class Ios(Settings):
    """Which parameters represent a client, and how their overlap is used."""

    section = "ios"
    at: Literal["auto", "received", "training", "trained"] = key(
        "auto",
        "where importance is measured: at the model that a client receives, at each step of its "
        "training on that step's samples, or on all samples at the model it has after training; "
        '"auto" means training with index-overlap, received with the others',
    )
    share: Share = key(
        0.0,
        "share of the parameters in a support; 0 means 5 %, or 200 parameters of a small "
        "model if ios.most allows; with index-overlap as many as reach ios.coverage",
    )
    coverage: SomeShare = key(0.9, "share of the importance that a support covers")
    most: Share = key(
        0.0,
        "largest share of the parameters in a support; 0 means 20 % with index-overlap "
        "(K_max), 25 % with the others",
    )
    samples: Count = key(
        0,
        "samples that importance is estimated from, in training those of its first steps; 0 uses "
        "all of the client's",
    )
    first_round: AtLeastOne = key(2, "first round in which clients are compared")
    every: AtLeastOne = key(5, "rounds between two comparisons")
    neighbours: AtLeastOne = key(8, "other clients that a client's own model is mixed from")
    signatures: bool = key(
        False,
        "clients send MinHash signatures; supports are fetched only where two signatures are alike",
    )
    stability: Share = key(
        0.0,
        "least overlap of supports from resampled importance (rho_0): of K and the two above "
        "it, the first that reaches it is used; 0 uses K by coverage alone",
    )
    resamples: Annotated[int, Field(ge=2)] = key(
        4, "parts of the local steps, or samples, for estimating the stability of K (r)"
    )


_IOS = Method(
    axis="similarity",
    offers=("a similarity",),
    name="index-overlap",
    about="the share of important parameters that two clients have in common",
    paper=PAPER,
    presets={"ios": {"cohorts": "similarity"}},
    settings=(Ios,),
    reads=PAPER_KEYS,
    core="selectors.similarities.index_overlap:overlap_matrix",
    layer="strategies.similarities.support_similarity:IndexOverlap.of_run",
    hook="client_app.hooks.supports:PaperIndices",
    sends=("indices",),
)
_OURS = replace(_IOS, paper="", after=PAPER)


def _similarity(name: str, about: str, core: str, **more: Any) -> Method:
    layer = f"strategies.similarities.client_similarity:{name.title()}.of_run"
    core = f"selectors.similarities.{core}"
    offers = ("a similarity",)
    return Method(
        axis="similarity", offers=offers, name=name, about=about, core=core, layer=layer, **more
    )


METHODS = (
    _IOS,
    replace(
        _OURS,
        name="centred-overlap",
        about="important parameters that two clients share and not everyone has",
        presets={"ios-centred": {"cohorts": "similarity"}},
        reads=SUPPORT_KEYS,
        core="selectors.similarities.index_overlap:centred_overlap_matrix",
        layer="strategies.similarities.support_similarity:CentredOverlap.of_run",
        hook="client_app.hooks.supports:ImportantIndices",
    ),
    replace(
        _OURS,
        name="signed-overlap",
        about="the largest changes that two updates have in common, by their signs",
        presets={},
        reads=CHANGE_KEYS,
        core="selectors.similarities.signed_overlap:signed_overlap_matrix",
        layer="strategies.similarities.support_similarity:SignedOverlap.of_run",
        hook="client_app.hooks.supports:SignedChanges",
        sends=("indices", "signs of changes"),
    ),
    CohortMethod(
        name="similarity",
        about="one model per cluster of similar clients (affinity propagation)",
        settings=(Ios,),
        reads=("first-round", "every", "signatures"),
        core="selectors.cohorts.similarity_clusters:similarity_clusters",
        rule="strategies.cohorts.similarity:SimilarityRule",
        sends=("update",),
        releases=("who is in which cohort",),
        models_per_reply=1.0,
        models_per_virtual_client=3.6,
        needs=("a similarity",),
    ),
    Method(
        axis="cohorts",
        name="neighbours",
        about="one model per client, mixed from those of the most similar clients",
        settings=(Ios,),
        reads=("first-round", "every", "neighbours", "signatures"),
        outer="strategies.layers.neighbours:Neighbours.of_run",
        releases=("mixtures of clients' models",),
        models_per_reply=4.4,
        needs=("a similarity",),
    ),
    _similarity("cosine", "the cosine of two clients' updates", "gram:cosine_matrix"),
    _similarity("euclidean", "the distance of two clients' updates", "gram:euclidean_matrix"),
    _similarity(
        *("oracle", "how alike the label histograms are (uses true labels)"),
        "histograms:histogram_similarity",
        sends=("labels",),
        needs=("classes",),
    ),
)
