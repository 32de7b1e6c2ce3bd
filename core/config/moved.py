"""Keys of earlier versions: what to write now."""

_AUXO, _PAPER = "auxo.{0} or auxo-paper.{0}", "auxo-paper.{0}"
_COHORT = {
    **dict.fromkeys(("parts", "split-rounds", "min-participants"), _AUXO),
    **dict.fromkeys(("within-groups", "ask-newcomers"), "auxo.{0}"),
    **dict.fromkeys(("first-clustering", "last-split", "split-exponent"), _PAPER),
    **dict.fromkeys(("exploration", "lies-allowed"), _PAPER),
    **dict.fromkeys(("mean-norm", "longest-norm", "cross-similarity"), "cfl.{0}"),
    "first-split": f"{_AUXO}, or cohort.joint-rounds for cfl and fl-hc",
    "pretrain-steps": "flexcfl.{0}",
    "distance": "fl-hc.{0}",
}
_NOW = {
    **{f"cohort.{name}": f"it is {now.format(name)} now" for name, now in _COHORT.items()},
    "tensorboard": "use callbacks = 'tensorboard'",
    "top-k.error-feedback": "use uplink = 'top-k', or 'top-k-paper' without it",
    "coreset.rule": "use data-selector = 'gcfl', 'gcfl-paper', 'gradmatch' or 'nearest'",
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


def what_now(key: str) -> str:
    """Return what to write for a key that an earlier version had; empty for any other.

    >>> what_now("cohort.parts")
    'it is auxo.parts or auxo-paper.parts now'
    >>> what_now("oort.exploration"), what_now("learning-rate")
    ('it can no longer be set', '')
    """
    return _NOW.get(key, "it can no longer be set" if key in _FIXED else "")
