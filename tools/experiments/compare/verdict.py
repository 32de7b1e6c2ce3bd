"""A comparison in words: what to run, and why; "no difference" where there is none."""

import math
from collections.abc import Sequence

from ...report.formatting import data_size, plural
from ..statistics import Difference
from .comparison import Comparison
from .findings import Finding, findings
from .measures import GOAL_NAMES

MARGIN = 0.02  # accuracies that are closer than two points are as good as equal
FEW_SEEDS = 3
STOPPED = "*"
BETTER, EQUAL, OPEN, WORSE = "better", "no difference", "not decided", "worse"


def judge(gap: Difference) -> str:
    """Return what the interval of a difference allows one to say.

    >>> judge(Difference(mean=0.01, low=-0.01, high=0.02, p_value=0.1, count=5))
    'no difference'
    >>> judge(Difference(mean=-0.2, low=-0.5, high=0.1, p_value=0.1, count=3))
    'not decided'
    >>> judge(Difference(mean=-0.2, low=-0.3, high=-0.1, p_value=0.01, count=3))
    'worse'
    """
    if math.isnan(gap.low):
        return OPEN
    if gap.low >= -MARGIN and gap.high <= MARGIN:
        return EQUAL
    if gap.low <= 0.0 <= gap.high:
        return OPEN
    return BETTER if gap.mean > 0.0 else WORSE


def verdict(comparison: Comparison, found: Sequence[Finding] | None = None) -> list[str]:
    """Return sentences, the answer first.

    Parameters
    ----------
    comparison : Comparison
        What was run.
    found : sequence of Finding, optional
        What was found, if it is at hand.
    """
    found = findings(comparison) if found is None else found
    known = [finding for finding in found if finding.seeds]
    if not known or not known[0].to_the_end:
        return ["No strategy can be recommended: every run to the end failed."]
    best, others = known[0], known[1:]
    lines = [
        _recommendation(best, others, comparison.baseline),
        _accuracy(comparison.goal, best, others),
        _sort_out("bytes", "At equal bytes", best, others),
        _sort_out("work", "At equal work of the clients", best, others),
        _other(comparison.goal, best, others),
        _worst(best, others),
        _evenness(known),
        _selecting(known),
        *_caveats(comparison, found),
    ]
    return [line for line in lines if line]


def recommended(best: Finding, others: Sequence[Finding], baseline: str) -> str:
    """Return what to run: the baseline, unless the best is better by more than chance."""
    against = _against(others, baseline)
    return best.name if against is None or judge(against) == WORSE else baseline


def _against(others: Sequence[Finding], baseline: str) -> Difference | None:
    return next((f.against["rounds"] for f in others if f.name == baseline), None)


def _recommendation(best: Finding, others: Sequence[Finding], baseline: str) -> str:
    against = _against(others, baseline)
    if not others:
        return f"Run {best.name}: there was nothing to compare it with."
    if against is None:
        return f"Run {best.name}: none of the others is better on these data."
    kind, lead = judge(against), _points(against, -1)
    if kind == WORSE:
        return f"Run {best.name}: it beats {baseline} by {lead}."
    if kind == EQUAL:
        return f"Run {baseline}: there is no difference to the best, {best.name} ({lead})."
    return (
        f"Run {baseline}: {best.name} came out higher by {lead}, but that may be chance. "
        "More seeds would tell."
    )


def _accuracy(goal: str, best: Finding, others: Sequence[Finding]) -> str:
    level = best.accuracy
    text = f"Accuracy {GOAL_NAMES[goal]}: {best.name} reaches {_percent(level.mean)}"
    if level.count > 1:
        low, high = max(0.0, level.low), min(1.0, level.high)  # a share knows its limits
        text += f" (95 % interval {_percent(low)} to {_percent(high)})"
    text += f" in {plural(best.rounds, 'round')}."
    return f"{text} {_sort_out('rounds', 'At equal rounds', best, others)}".strip()


def _other(goal: str, best: Finding, others: Sequence[Finding]) -> str:
    """Say how the other accuracy compares: it is what several models for several groups are for."""
    (name,) = [text for key, text in GOAL_NAMES.items() if key != goal]
    if not best.other.count:
        return ""
    text = f"Accuracy {name}: {_percent(best.other.mean)} with {best.name}."
    return f"{text} {_sort_out('other', 'At equal rounds', best, others)}".strip()


def _worst(best: Finding, others: Sequence[Finding]) -> str:
    if not best.worst.count:
        return "The worst tenth of clients was not measured: data.client-test-share is 0."
    text = f"The worst tenth of clients has {_percent(best.worst.mean)} with {best.name}."
    return f"{text} {_sort_out('worst', 'At equal rounds', best, others)}".strip()


def _sort_out(axis: str, when: str, best: Finding, others: Sequence[Finding]) -> str:
    """Say who is better than the best in something, equal to it, not decided, or worse."""
    kinds: dict[str, list[str]] = {BETTER: [], EQUAL: [], OPEN: [], WORSE: []}
    for finding in others:
        gap = finding.against[axis]
        if gap.count:
            mark = "" if finding.to_the_end else STOPPED
            kinds[judge(gap)].append(f"{finding.name}{mark} ({100 * gap.mean:+.1f})")
    told = [f"{', '.join(names)} {kind}" for kind, names in kinds.items() if names]
    return f"{when}, against {best.name}: {'; '.join(told)}." if told else ""


def _evenness(known: Sequence[Finding]) -> str:
    measured = [finding for finding in known if finding.evenness.count]
    if not measured:
        return ""
    ranked = sorted(measured, key=lambda finding: -finding.evenness.mean)
    most, least = ranked[0], ranked[-1]
    if least.evenness.mean > most.evenness.mean - 0.005:
        return f"Clients take part alike with all (Jain's index {most.evenness.mean:.2f})."
    return (
        f"Clients take part most evenly with {most.name} (Jain's index {most.evenness.mean:.2f}; "
        f"1 is all alike), least evenly with {least.name} ({least.evenness.mean:.2f})."
    )


def _selecting(known: Sequence[Finding]) -> str:
    costly = [f for f in known if f.selecting_a_round[0] >= 0.01 * _bytes_a_round(f)]
    if not costly:
        return "Selecting costs less than a hundredth of the bytes with all of them."
    costs = [(f.name, *f.selecting_a_round) for f in costly]
    told = [f"{name} {data_size(size)} and {1e3 * time:.0f} ms" for name, size, time in costs]
    return f"Selecting costs a round: {', '.join(told)}; with the others next to nothing."


def _bytes_a_round(finding: Finding) -> float:
    return finding.costs["bytes"].mean / max(1.0, finding.rounds)


def _caveats(comparison: Comparison, found: Sequence[Finding]) -> list[str]:
    lines = [_stopped([f for f in found if f.seeds and not f.to_the_end])]
    if len(comparison.seeds) < FEW_SEEDS:
        lines.append(f"With {plural(len(comparison.seeds), 'seed')} chance cannot be judged well.")
    failed = [f"{f.name} ({plural(f.failed, 'run')})" for f in found if f.failed]
    if failed:
        lines.append(f"Failed: {', '.join(failed)}; runs.jsonl says why.")
    return lines


def _stopped(found: Sequence[Finding]) -> str:
    """Say who was stopped early, and that this is not the last word on them."""
    if not found:
        return ""
    text = (
        f"{STOPPED} Stopped early for being behind, and compared there: a slow starter may catch "
        "up later. --to-the-end gives all of them the whole budget."
    )
    close = [f.name for f in found if judge(f.against["rounds"]) != WORSE]
    return f"{text} Behind by no more than chance: {', '.join(close)}." if close else text


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"


def _points(gap: Difference, sign: int = 1) -> str:
    """Write a difference of shares in points, with its interval.

    >>> _points(Difference(mean=-0.02, low=-0.03, high=-0.01, p_value=0.01, count=5), -1)
    '2.0 points [1.0, 3.0]'
    """
    text = f"{100 * sign * gap.mean:.1f} points"
    if math.isnan(gap.low):
        return text
    low, high = sorted((100 * sign * gap.low, 100 * sign * gap.high))
    return f"{text} [{low:.1f}, {high:.1f}]"
