"""IOS: clients compared by the indices of their important parameters, no values sent.

And by the indices and signs of the largest changes of their updates, which is one bit of each.
"""

from typing import Annotated, Literal

from pydantic import Field

from .base import AtLeastOne, BelowOne, Count, Method, Settings, Share, SomeShare

PAPER = "Index-Overlap Similarity (IOS)"
CHANGE_KEYS = ("share", "most", "per-layer")
SUPPORT_KEYS = (*CHANGE_KEYS, "at", "ema", "samples")
PAPER_KEYS = (*SUPPORT_KEYS, "coverage", "stability", "resamples")
SIGNATURE_KEYS = ("signatures", "hashes", "bands")


class Ios(Settings):
    """Which parameters represent a client, and how their overlap is used."""

    section = "ios"
    at: Literal["auto", "received", "training", "trained"] = Field(
        default="auto",
        description="where importance is measured: at the model that a client receives, at each "
        "step of its training on that step's samples, or on all samples at the model it has "
        'after training; "auto" means training with index-overlap, received with the others',
    )
    share: Share = Field(
        default=0.0,
        description="share of the parameters in a support; 0 means 5 %, or 200 parameters of a "
        "small model if ios.most allows; with index-overlap as many as reach ios.coverage",
    )
    coverage: SomeShare = Field(
        default=0.9, description="share of the importance that a support covers"
    )
    most: Share = Field(
        default=0.0,
        description="largest share of the parameters in a support; 0 means 20 % with index-overlap "
        "(K_max), 25 % with the others",
    )
    stability: Share = Field(
        default=0.0,
        description="how much supports of resampled importance must overlap (rho_0): of K and the "
        "two above it the first that do is taken; 0 takes K by coverage alone",
    )
    resamples: Annotated[int, Field(ge=2)] = Field(
        default=4,
        description="parts of the local steps, or samples, that the stability of K is judged by "
        "(r)",
    )
    ema: BelowOne = Field(default=0.8, description="weight of the past in the average importance")
    per_layer: bool = Field(
        default=False, description="fill the support layer by layer, in proportion to their sizes"
    )
    samples: Count = Field(
        default=0,
        description="samples that importance is estimated from, in training those of its first "
        "steps; 0 uses all of the client's",
    )
    first_round: AtLeastOne = Field(
        default=2, description="first round in which clients are compared"
    )
    every: AtLeastOne = Field(default=5, description="rounds between two comparisons")
    neighbours: AtLeastOne = Field(
        default=8, description="other clients that a client's own model is mixed from"
    )
    signatures: bool = Field(
        default=False,
        description="clients send MinHash signatures; supports are fetched only where two "
        "signatures are alike",
    )
    hashes: Annotated[int, Field(ge=1, le=4096)] = Field(
        default=128, description="length of a signature"
    )
    bands: AtLeastOne = Field(
        default=32,
        description="bands of a signature; clients that share a whole band count as alike",
    )

    def problems(self) -> list[str]:
        """Return whether the bands do not divide a signature."""
        if self.signatures and self.hashes % self.bands:
            return [f"ios.bands = {self.bands}: must divide ios.hashes = {self.hashes}"]
        return []


METHODS = (
    Method(
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
    ),
    Method(
        axis="similarity",
        offers=("a similarity",),
        name="centred-overlap",
        about="important parameters that two clients share and not everyone has",
        after=PAPER,
        presets={"ios-centred": {"cohorts": "similarity"}},
        settings=(Ios,),
        reads=SUPPORT_KEYS,
        core="selectors.similarities.index_overlap:centred_overlap_matrix",
        layer="strategies.similarities.support_similarity:CentredOverlap.of_run",
        hook="client_app.hooks.supports:ImportantIndices",
        sends=("indices",),
    ),
    Method(
        axis="similarity",
        offers=("a similarity",),
        name="signed-overlap",
        about="the largest changes that two updates have in common, by their signs",
        after=PAPER,
        settings=(Ios,),
        reads=CHANGE_KEYS,
        core="selectors.similarities.signed_overlap:signed_overlap_matrix",
        layer="strategies.similarities.support_similarity:SignedOverlap.of_run",
        hook="client_app.hooks.signed_supports:SignedChanges",
        sends=("indices", "signs of changes"),
    ),
)
