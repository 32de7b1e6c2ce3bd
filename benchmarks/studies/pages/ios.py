"""What the records say of IOS."""

from ...ios import SPLITS
from ...sweeps.measures import final, total_bytes
from ...sweeps.tables import Column
from ..alignment import SHOWN
from ..claims import Claim, Trial
from ..ios import alignment, cohorts
from .page import Curves, Page

ACCURACY = final("clients-accuracy-mean")  # of 15 rounds
# Table 1, CNN on Fashion-MNIST: IOS minus cosine; table 3: recall of the 8 nearest on FMNIST
PAPER_ACCURACY = {"Dir(0.3)": 2.91, "Dir(0.1)": 3.99, "Patho(20 %)": 0.31, "Patho(30 %)": 0.96}


def page() -> Page:
    """Return the page."""
    agree, trained = alignment(), cohorts()
    places = [cell.name for cell in agree.cells if cell.name.endswith("8 epochs")]

    def nearest(first: str, second: str) -> tuple[Trial, ...]:
        return tuple(
            Trial(
                *(f"{p}, {first} - {second}", agree, p, p, final(f"R@8 of {first}")),
                baseline_measure=final(f"R@8 of {second}"),
            )
            for p in places
        )

    def by(first: str, second: str, paper: dict[str, float]) -> tuple[Trial, ...]:
        return tuple(
            Trial(
                *(f"{s}, {first} - {second}", trained, f"{s}: {first}", f"{s}: {second}", ACCURACY),
                paper=paper.get(s),
            )
            for s in SPLITS
        )

    more_epochs = tuple(
        Trial(f"{p}, 8 - 2 epochs", agree, p, p.replace("8 ep", "2 ep"), final("R@8 of paper"))
        for p in places
    )
    claims = (
        Claim(
            "Finds neighbours better than the cosine of updates (table 3)",
            nearest("paper", "cosine"),
        ),
        Claim("Needs 8 local epochs (table 9)", more_epochs),
        Claim(
            "Clusters by it train more accurate models than by cosine (table 1)",
            (
                *by("index-overlap", "cosine", PAPER_ACCURACY),
                *by("K of 12.2 %", "cosine", PAPER_ACCURACY),
            ),
        ),
        Claim("Its K is better than a larger one (table 6)", by("K of 12.2 %", "K of 25 %", {})),
        Claim(
            "Ours: received model, 5 %, centred, finds neighbours better", nearest("index", "paper")
        ),
        Claim(
            "Importance over training finds them better than after it (section 3.1)",
            nearest("paper", "after"),
        ),
        Claim("Ours: with signs not below the cosine", nearest("signed", "cosine"), "not below"),
        Claim(
            "Ours: clusters not below those by cosine",
            by("centred-overlap", "cosine", {}),
            "not below",
        ),
        Claim(
            "Clusters better than one model (table 1)",
            (*by("index-overlap", "one model", {}), *by("centred-overlap", "one model", {})),
        ),
        Claim(
            "Ours: clusters better than one model that each client tunes for two epochs",
            by("centred-overlap", "one model, tuned", {}),
        ),
        Claim(
            "Ours: `forager` not below clusters that are tuned likewise",
            by("forager", "centred-overlap, tuned", {}),
            "not below",
        ),
    )
    sent = [
        Column(f"{score} of {short}", final(f"{score} of {short}"), ".2f")
        for score in ("R@8", "tau", "JS")
        for short in SHOWN
    ]
    sizes = [
        Column(f"bytes of {short}", final(f"bytes of {short}"), ",.0f")
        for short in ("index", "signed", "cosine")
    ]
    return Page(
        key="ios",
        title="IOS",
        cite=(
            "The paper's differences are those of IOS and cosine on Fashion-MNIST with a CNN (table"
            " 1). R@8 is the share of a client's 8 nearest by labels that a similarity finds; tau"
            " is Kendall's agreement of the two orders; JS is how far the labels of a client's"
            " neighbours, mixed by similarity, are from its own (Jensen-Shannon, less is better)."
            " `paper` measures importance over local training and uses one K for all, the mean of"
            " the clients' K*, at most 20 %, as `strategy='ios'` does; `after` measures"
            " importance after training. `K of 12.2 %` is `index-overlap` with the paper's K for"
            " this network. Accuracy is that of the last round."
        ),
        answer=ANSWER,
        claims=claims,
        unit="points",
        curves=(
            Curves(
                *(trained, "clients-accuracy-mean", "accuracy on the clients' own data"),
                {
                    s: {
                        m: f"{s}: {m}"
                        for m in ("one model", "centred-overlap", "index-overlap", "cosine")
                    }
                    for s in SPLITS
                },
            ),
        ),
        tables={
            agree.name: (*sent, *sizes),
            trained.name: (
                Column("accuracy", ACCURACY),
                Column("worst tenth", final("clients-accuracy-worst-10")),
                Column("cohorts", final("cohorts"), ".1f"),
                Column("MB", total_bytes(), ".0f", scale=1e-6),
            ),
        },
        studies=[agree, trained],
    )


ANSWER = (
    (
        "Importance measured during local training, as in the paper, finds a client's neighbours "
        "better than importance measured after it. If clients hold few classes, clusters by "
        "indices are above one model without tuning."
    ),
    (
        "The cosine of updates, at fifty times the bytes, finds more neighbours than the paper's "
        "overlaps, and neither more local epochs nor the paper's K in place of a larger one helps. "
        "Clusters by indices are not shown to train better models than clusters by cosine."
    ),
    (
        "First try one model that each client tunes on its own data (`personalise.epochs=2`): it "
        "is 5 to 13 points above clusters. Use `ios-centred` to find similar clients if they may "
        "not send values; it works best if most clients train in every round."
    ),
)
