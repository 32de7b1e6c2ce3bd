"""Keys and names of earlier versions: what to write now."""

from collections.abc import Mapping

from ..methods.catalogue import AXES

_BOTH, _AUXO = "split-test.{0} or auxo.{0}", "auxo.{0}"
_OF_AUXO = ("first-clustering", "last-split", "split-exponent", "exploration", "lies-allowed")
_OF_BOTH = ("parts", "split-rounds", "min-participants")
_COHORT = {
    **dict.fromkeys(_OF_BOTH, _BOTH),
    **dict.fromkeys(("within-groups", "ask-newcomers"), "split-test.{0}"),
    **dict.fromkeys(_OF_AUXO, _AUXO),
    **dict.fromkeys(("mean-norm", "longest-norm", "cross-similarity"), "cfl.{0}"),
    "first-split": f"{_BOTH}, or cohort.joint-rounds for cfl and fl-hc",
    "pretrain-steps": "flexcfl.{0}",
    "distance": "fl-hc.{0}",
}
_NOW = {
    **{f"cohort.{name}": f"it is {now.format(name)} now" for name, now in _COHORT.items()},
    **{
        f"auxo-paper.{name}": f"it is auxo.{name} now"
        for name in (*_OF_AUXO, *_OF_BOTH, "first-split")
    },
    **{
        f"auxo.{name}": f"it is split-test.{name} now, with cohorts = 'split-test'"
        for name in ("within-groups", "ask-newcomers")
    },
    "tensorboard": "use callbacks = 'tensorboard'",
    "top-k.error-feedback": "use uplink = 'top-k', or 'top-k-plain' without it",
    "coreset.rule": "use data-selector = 'gcfl', 'trusted', 'gradmatch' or 'nearest'",
    "aggregation.beta-1": "it is aggregation.momentum now",
}
# With one value that suits all, which is now in the algorithm
_FIXED = {
    *("cohort.dimension", "cohort.exploration-decay", "cohort.reward-rate"),
    *("coreset.tolerance", "coreset.nonnegative", "aggregation.beta-2"),
    *("oort.exploration", "oort.least-exploration", "oort.slow-penalty", "oort.blacklist-after"),
    *("dissimilarity-cooldown.silent-ratio", "power-of-choice.candidates", "moon.temperature"),
    *("early-stop.min-delta", "round.question-quorum", "stream.head-start"),
}
# Of methods and presets; accepted for one version. What had a paper's name and was not the paper's
# cannot be told from the paper's.
_NAMES = {
    **{f"{n}-paper": n for n in ("cosage", "gcfl", "ode", "auxo", "ios", "index-overlap")},
    "top-k-paper": "top-k-plain",
    "agreement": "trusted",
}


def what_now(key: str) -> str:
    """Return what to write for a key that an earlier version had; empty for any other.

    >>> what_now("auxo-paper.parts")
    'it is auxo.parts now'
    >>> what_now("oort.exploration"), what_now("learning-rate")
    ('it can no longer be set', '')
    """
    return _NOW.get(key, "it can no longer be set" if key in _FIXED else "")


def name_now(name: str) -> str:
    """Return what a method or a preset is called now.

    >>> name_now("gcfl-paper"), name_now("gcfl")
    ('gcfl', 'gcfl')
    """
    return _NAMES.get(name, name)


def old_names(given: Mapping[str, object]) -> list[str]:
    """Return what to write for the methods that a run config calls by their old names.

    >>> old_names({"strategy": "gcfl-paper", "uplink": "top-k", "seed": 1})
    ["strategy = 'gcfl-paper': it is 'gcfl' now; the old name goes with the next version"]
    """
    return [
        f"{key} = {given[key]!r}: it is {_NAMES[str(given[key])]!r} now; "
        "the old name goes with the next version"
        for key in ("strategy", *AXES)
        if given.get(key) in _NAMES
    ]
