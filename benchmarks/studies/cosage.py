"""CosAge: whether one number per client, with the age of what it last sent, chooses well."""

from ...core.config import Scalar
from ...tools.experiments.records import Cell
from ..cosage import PAPER, SETTINGS
from .study import Study

Settings = dict[str, Scalar]

POLICIES: dict[str, Settings] = {
    "cosage": {"client-selector": "cosage"},
    "cosage, 30 asked": {"client-selector": "cosage", "summary.ask-at-most": 30},
    "aoi": {"client-selector": "aoi"},
    "random": {"client-selector": "random"},
    "dissimilarity": {"client-selector": "dissimilarity"},
    "oort": {"client-selector": "oort"},
}
# The paper's other policies, and what a user would pick
MORE: dict[str, Settings] = {
    **{
        rule: {"client-selector": rule}
        for rule in (
            *("cluster-oracle", "all", "local-loss", "power-of-choice"),
            *("dissimilarity-cooldown", "dissimilarity-sampling", "hics"),
        )
    },
    "forager": {"strategy": "forager", "serving": "model"},
}
COMMON: Settings = {**PAPER, "study.runner": "classes", "num-server-rounds": 60}
STEPS = (2, 8)
SEEDS = range(10)


def digits() -> Study:
    """Return the choice of 10 of 100 clients with one or three shards, with real local work."""
    cells = [
        Cell(
            f"{shards} shard{'s' * (shards > 1)}, {steps} steps: {policy}",
            {**COMMON, **SETTINGS[f"digits-{shards}"], "local-steps": steps, **changes},
        )
        for shards in (1, 3)
        for steps in STEPS
        for policy, changes in {**POLICIES, **(MORE if steps == max(STEPS) else {})}.items()
    ]
    setting = (
        "Digits, 100 clients with 1 or 3 shards each, 10 per round, softmax, batches of 8, 2 or 8"
        " local steps, a tenth of the update sent, 60 rounds. Rules are those of their papers, with"
        " no limit on turns; `all` trains every client in every round."
    )
    primary = (
        *(
            f"3 shards, 8 steps: {policy}"
            for policy in (
                *("cosage", "cosage, 30 asked", "aoi", "random", "dissimilarity"),
                *("cluster-oracle", "local-loss", "hics"),
            )
        ),
        *(f"1 shard, 8 steps: {policy}" for policy in ("cosage", "forager")),
    )
    return Study("cosage-digits", "cosage", setting, tuple(cells), SEEDS, primary=primary)


def ordered() -> Study:
    """Return clients whose ids follow their labels, where ties between ages can be broken by id.

    Taking turns in the order of ids is what age does whose ties go to the lower id.
    """
    policies: dict[str, Settings] = {
        **{name: POLICIES[name] for name in ("random", "aoi")},
        "aoi, ties by id": {"client-selector": "round-robin"},
        "cosage": POLICIES["cosage"],
    }
    common: Settings = {**COMMON, **SETTINGS["digits-1"], "study.data": "digits-by-label"}
    cells = [
        Cell(
            f"ordered, {steps} steps: {policy}",
            {**common, "partition": "natural", "local-steps": steps, **changes},
        )
        for steps in STEPS
        for policy, changes in policies.items()
    ]
    setting = (
        "Digits sorted by label and cut into 100 clients in that order, 10 per round; the rest as"
        " above. With ties by id, age takes clients 0 to 9, then 10 to 19, and so on."
    )
    primary = tuple(f"ordered, 8 steps: {policy}" for policy in ("cosage", "aoi, ties by id"))
    return Study("cosage-ordered", "cosage", setting, tuple(cells), SEEDS, primary=primary)


def features() -> Study:
    """Return the head of a frozen backbone, with one layer and with three as VGG16 has."""
    common: Settings = {
        **COMMON,
        "study.data": "cifar-features",
        "num-clients": 100,
        "clients-per-round": 10,
        "split.shards-per-client": 3,
        "local-steps": 8,
        "batch-size": 32,
    }
    heads: dict[str, Settings] = {
        "linear head": {"model": "softmax"},
        "head of three layers": {"model": "forager.benchmarks.studies.heads:three_layers"},
    }
    cells = [
        Cell(f"{head}: {policy}", {**common, **model, **changes})
        for head, model in heads.items()
        for policy, changes in POLICIES.items()
        if policy in ("cosage", "aoi", "random")
    ]
    setting = (
        "CIFAR-10 through a frozen EfficientNet-Lite0 (6,000 images), 100 clients with 3 shards"
        " each, 10 per round, batches of 32, 8 local steps, learning rate 0.01, a tenth of the"
        " head sent, 60 rounds."
    )
    return Study("cosage-features", "cosage", setting, tuple(cells), SEEDS)


def forms() -> Study:
    """Return the similarity as we read it beside eq. 8 and 9 as printed, by the same code."""
    common: Settings = {**COMMON, **POLICIES["cosage"]}
    runners = {"unit": "two-forms", "printed": "two-forms", "index-overlap": "classes"}
    cells = [
        Cell(
            f"{shards} shard{'s' * (shards > 1)}, {steps} steps: {form}",
            {
                **common,
                **SETTINGS[f"digits-{shards}"],
                "study.runner": runner,
                "local-steps": steps,
                "summary.form": form,
            },
        )
        for shards in (1, 3)
        for steps in STEPS
        for form, runner in runners.items()
    ]
    setting = (
        "The digits as above. `unit` is how `cosage` reads eq. 8 and 9; `printed` and"
        " `index-overlap` (ours, after IOS) are values of `summary.form`. In every round"
        " of the first two, the other form also chooses, from the same updates and ages, without"
        " effect on the run; the column counts the choices, of 10, that both share."
    )
    return Study("cosage-forms", "cosage", setting, tuple(cells), SEEDS)


def studies() -> list[Study]:
    """Return the studies of this paper."""
    return [digits(), ordered(), features(), forms()]
