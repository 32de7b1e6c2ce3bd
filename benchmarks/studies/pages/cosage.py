"""What the records say of CosAge."""

from ....tools.experiments.measures import Measure
from ...sweeps.measures import at_round, final, jitter, mean_height, total, total_bytes
from ...sweeps.tables import Column
from ..claims import Claim, Trial
from ..cosage import MORE, POLICIES, STEPS, digits, features, forms, ordered
from .forms import table_of_forms
from .page import Curves, Page

HEIGHT = mean_height("accuracy")
# The first is the paper's large setting: 100 clients with 3 shards each, 10 per round
SETTINGS = ("3 shards, 8 steps", "1 shard, 8 steps", "3 shards, 2 steps", "1 shard, 2 steps")
WORKING = SETTINGS[:2]  # with as many steps as tell something
HEADS = ("linear head", "head of three layers")
COLUMNS = (
    Column("round 9", at_round("accuracy", 9)),
    Column("last", final("accuracy")),
    Column("mean of all rounds", HEIGHT),
    Column("change per 3 rounds", jitter("accuracy")),
    Column("worst class", final("worst-class")),
    Column("MB", total_bytes(), ".1f", scale=1e-6),
    Column("MB selecting", total("bytes-select"), ".1f", scale=1e-6),
)


def page() -> Page:
    """Return the page."""
    small, large, sorted_ids, read = digits(), features(), ordered(), forms()

    def against(
        *others: str, measure: Measure = HEIGHT, scale: float = 100.0, cell: str = "cosage"
    ) -> tuple[Trial, ...]:
        return tuple(
            Trial(
                f"{s}, {cell} - {other}{', change per 3 rounds' if scale < 0 else ''}",
                *(small, f"{s}: {cell}", f"{s}: {other}", measure, scale),
                smallest=0.5 if scale < 0 else None,
            )
            for other in others
            for s in (WORKING if other in MORE or cell in MORE else SETTINGS)
        )

    heads = tuple(
        Trial(f"CIFAR-10, {h}, against aoi", large, f"{h}: cosage", f"{h}: aoi", HEIGHT)
        for h in HEADS
    )
    by_id = tuple(
        Trial(
            f"ids follow labels, {steps} steps, against {other}",
            *(sorted_ids, f"ordered, {steps} steps: cosage", f"ordered, {steps} steps: {other}"),
            HEIGHT,
        )
        for other in ("aoi, ties by id", "aoi")
        for steps in reversed(STEPS)
    )
    claims = (
        Claim(
            "Close to an oracle that knows the clients' classes (figure 3)",
            against("cluster-oracle"),
            "not below",
        ),
        Claim("Better than age alone with many clients (figure 3)", (*against("aoi"), *heads)),
        Claim(
            "Better than dissimilarity alone, with and without remedies (figures 3 and 4)",
            against("dissimilarity", "dissimilarity-cooldown", "dissimilarity-sampling"),
        ),
        Claim(
            "Better than rules by loss (figure 3)",
            against("local-loss", "power-of-choice", "oort"),
        ),
        Claim("Better than age alone where client ids follow labels", by_id),
        Claim(
            "A smoother curve than age alone (figure 2)",
            against("aoi", measure=jitter("accuracy"), scale=-100),
        ),
        Claim("Better than random choice", against("random")),
        Claim("Better than HiCS-FL, which sends nothing extra", against("hics")),
        Claim(
            "Ours: `forager` not below CosAge",
            tuple(reversed(against("cosage", cell="forager"))),  # one class per client first
            "not below",
        ),
        Claim(
            "Ours: asking the 30 oldest of 100 clients is no worse than asking all",
            tuple(
                Trial(
                    f"{s}, 30 asked - all asked",
                    *(small, f"{s}: cosage, 30 asked", f"{s}: cosage", HEIGHT),
                )
                for s in SETTINGS
            ),
            "not below",
        ),
    )
    return Page(
        key="cosage",
        title="CosAge",
        cite="Figures 2 to 4 of the paper compare policies by their curves, without numbers.",
        answer=ANSWER,
        claims=claims,
        unit="points of accuracy, mean of all rounds",
        curves=(
            Curves(
                *(small, "accuracy", "accuracy"),
                {s: {p: f"{s}: {p}" for p in POLICIES if "," not in p} for s in SETTINGS},
            ),
            Curves(
                *(sorted_ids, "accuracy", "accuracy"),
                {
                    f"ids follow labels, {steps} steps": {
                        policy: f"ordered, {steps} steps: {policy}"
                        for policy in ("cosage", "aoi", "aoi, ties by id", "random")
                    }
                    for steps in reversed(STEPS)
                },
            ),
        ),
        tables={study.name: COLUMNS for study in (small, sorted_ids, large, read)},
        studies=[small, sorted_ids, large, read],
        more={"How eq. 8 and 9 are read": table_of_forms()},
    )


ANSWER = (
    (
        "Where each client holds one class, CosAge is ahead of taking turns by age, of random "
        "choice and of rules by loss. It is ahead of dissimilarity alone everywhere, with and "
        "without remedies."
    ),
    (
        "With three classes per client, the paper's setting, it is less than a point ahead of "
        "taking turns, and less than a point behind an oracle that knows the classes; with one "
        "class the oracle is ahead of it by 6 points."
    ),
    (
        "Use it if each client has one or two classes and trains for several local steps, and set "
        "`summary.ask-at-most` to halve the cost of its questions. Otherwise take turns "
        "(`client-selector='aoi'`)."
    ),
)
