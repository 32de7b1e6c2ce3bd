"""A comparison in words: what to run, and why; "no difference" where there is none."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from ....core.config import default_config, read_config
from ....core.tasks.metric_text import title, written
from ....core.tasks.metrics import ACCURACY, Metric
from ...report.formatting import data_size, plural
from ..statistics import Difference
from .comparison import Comparison
from .findings import StrategyFinding, findings
from .measures import GOAL_NAMES

MARGIN = 0.02  # shares that are closer than two points are as good as equal
FEW_SEEDS = 3
STOPPED = "*"
BETTER, EQUAL, OPEN, WORSE = "better", "no difference", "not decided", "worse"


@dataclass(frozen=True)
class Ruler:
    """What differences are judged by."""

    metric: Metric  # says which way is better
    margin: float  # values that are closer are as good as equal

    @classmethod
    def of(cls, metric: Metric, best: StrategyFinding | None) -> "Ruler":
        """Return two points for a share, and two per cent of the best's score for the rest."""
        known = best is not None and not math.isnan(best.score.mean)
        level = abs(best.score.mean) if best is not None and known else 0.0
        return cls(metric, MARGIN if metric.share else MARGIN * level)


EVEN = Ruler(Metric("evenness"), MARGIN)


POINTS = Ruler(ACCURACY, MARGIN)


def judge(gap: Difference, ruler: Ruler = POINTS) -> str:
    """Return what the interval of a difference allows one to say.

    >>> judge(Difference(mean=0.01, low=-0.01, high=0.02, p_value=0.1, count=5))
    'no difference'
    >>> judge(Difference(mean=-0.2, low=-0.5, high=0.1, p_value=0.1, count=3))
    'not decided'
    >>> judge(Difference(mean=-0.2, low=-0.3, high=-0.1, p_value=0.01, count=3))
    'worse'
    >>> lower = Ruler(Metric("mae", higher_is_better=False), 0.02)
    >>> judge(Difference(mean=-0.2, low=-0.3, high=-0.1, p_value=0.01, count=3), lower)
    'better'
    """
    if math.isnan(gap.low):
        return OPEN
    if gap.low >= -ruler.margin and gap.high <= ruler.margin:
        return EQUAL
    if gap.low <= 0.0 <= gap.high:
        return OPEN
    return BETTER if ruler.metric.better(gap.mean, than=0.0) else WORSE


def verdict(comparison: Comparison, found: Sequence[StrategyFinding] | None = None) -> list[str]:
    """Return sentences, the answer first."""
    found = findings(comparison) if found is None else found
    known = [finding for finding in found if finding.seeds]
    if not known or not known[0].to_the_end:
        return ["No strategy can be recommended: every run to the end failed."]
    best, others = known[0], known[1:]
    ruler = Ruler.of(comparison.metric, best)
    lines = [
        _recommendation(best, others, comparison, ruler),
        _score(comparison.goal, best, others, ruler),
        _sort_out("bytes", "At equal bytes", best, others, ruler),
        _sort_out("work", "At equal work of the clients", best, others, ruler),
        _other(comparison.goal, best, others, ruler),
        _worst(best, others, ruler),
        _evenness(known),
        _selecting(known),
        *_caveats(comparison, found, ruler),
    ]
    return [line for line in lines if line]


def recommended(
    best: StrategyFinding, others: Sequence[StrategyFinding], baseline: str, ruler: Ruler
) -> str:
    """Return what to run: the baseline, unless the best is better by more than chance."""
    against = _against(others, baseline)
    return best.name if against is None or judge(against, ruler) == WORSE else baseline


def _against(others: Sequence[StrategyFinding], baseline: str) -> Difference | None:
    return next((f.against["rounds"] for f in others if f.name == baseline), None)


def _recommendation(
    best: StrategyFinding, others: Sequence[StrategyFinding], comparison: Comparison, ruler: Ruler
) -> str:
    baseline = comparison.baseline
    against = _against(others, baseline)
    if not others:
        return f"Run {best.name}: there was nothing to compare it with."
    if against is None:
        return f"Run {best.name}: none of the others is better {GOAL_NAMES[comparison.goal]}."
    kind, lead = judge(against, ruler), _lead(against, ruler.metric)
    if kind == WORSE:
        return f"Run {best.name}: it beats {baseline} by {lead}."
    if kind == EQUAL:
        return f"Run {baseline}: there is no difference from the best, {best.name} ({lead})."
    return (
        f"Run {baseline}: {best.name} came out ahead by {lead}, but that may be chance. "
        "More seeds would decide."
    )


def _score(
    goal: str, best: StrategyFinding, others: Sequence[StrategyFinding], ruler: Ruler
) -> str:
    level, metric = best.score, ruler.metric
    reached = written(metric, level.mean)
    text = f"{title(metric)} {GOAL_NAMES[goal]}: {best.name} reaches {reached}"
    if level.count >= FEW_SEEDS:
        low, high = level.low, level.high
        if metric.share:  # a share is within 0 and 1
            low, high = max(0.0, low), min(1.0, high)
        text += f" (95 % interval {written(metric, low)} to {written(metric, high)})"
    text += f" in {plural(best.rounds, 'round')}."
    return f"{text} {_sort_out('rounds', 'At equal rounds', best, others, ruler)}".strip()


def _other(
    goal: str, best: StrategyFinding, others: Sequence[StrategyFinding], ruler: Ruler
) -> str:
    """Say how they compare on the other data: it is what the clients' own models are for."""
    (name,) = [text for key, text in GOAL_NAMES.items() if key != goal]
    if not best.other.count:
        return ""
    metric = ruler.metric
    text = f"{title(metric)} {name}: {written(metric, best.other.mean)} with {best.name}."
    text = f"{text} {_sort_out('other', 'At equal rounds', best, others, ruler)}".strip()
    if not any(judge(finding.against["other"], ruler) == BETTER for finding in others):
        return text
    (other,) = GOAL_NAMES.keys() - {goal}
    return f"{text} Add --goal {other} if these data are what counts."


def _worst(best: StrategyFinding, others: Sequence[StrategyFinding], ruler: Ruler) -> str:
    if not best.worst.count:
        return "The worst tenth of clients was not measured: data.client-test-share is 0."
    reached = written(ruler.metric, best.worst.mean)
    text = f"The worst tenth of clients has {reached} with {best.name}."
    return f"{text} {_sort_out('worst', 'At equal rounds', best, others, ruler)}".strip()


def _sort_out(
    axis: str, when: str, best: StrategyFinding, others: Sequence[StrategyFinding], ruler: Ruler
) -> str:
    """Say who is better than the best in something, equal to it, not decided, or worse."""
    kinds: dict[str, list[str]] = {BETTER: [], EQUAL: [], OPEN: [], WORSE: []}
    for finding in others:
        gap = finding.against[axis]
        if gap.count:
            mark = "" if finding.to_the_end else STOPPED
            said = signed(ruler.metric, gap.mean)
            kinds[judge(gap, ruler)].append(f"{finding.name}{mark} ({said})")
    told = [f"{', '.join(names)} {kind}" for kind, names in kinds.items() if names]
    return f"{when}, against {best.name}: {'; '.join(told)}." if told else ""


def _evenness(known: Sequence[StrategyFinding]) -> str:
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


def _selecting(known: Sequence[StrategyFinding]) -> str:
    costly = [f for f in known if f.selecting_a_round[0] >= 0.01 * _bytes_a_round(f)]
    if not costly:
        return "Selecting costs less than a hundredth of the bytes with all of them."
    costs = [(f.name, *f.selecting_a_round) for f in costly]
    told = [f"{name} {data_size(size)} and {1e3 * time:.0f} ms" for name, size, time in costs]
    rest = (
        "" if len(costly) == len(known) else "; with the others less than a hundredth of the bytes"
    )
    return f"Selecting costs per round: {', '.join(told)}{rest}."


def _bytes_a_round(finding: StrategyFinding) -> float:
    return finding.costs["bytes"].mean / max(1.0, finding.rounds)


def _caveats(comparison: Comparison, found: Sequence[StrategyFinding], ruler: Ruler) -> list[str]:
    lines = [_stopped([f for f in found if f.seeds and not f.to_the_end], ruler)]
    lines.append(_compressed(found, comparison.baseline))
    if len(comparison.seeds) < FEW_SEEDS:
        lines.append(f"With {plural(len(comparison.seeds), 'seed')} chance cannot be judged well.")
    failed = [f"{f.name} ({plural(f.failed, 'run')})" for f in found if f.failed]
    if failed:
        lines.append(f"Failed: {', '.join(failed)}; runs.jsonl says why.")
    return lines


def _compressed(found: Sequence[StrategyFinding], baseline: str) -> str:
    """Say who also sends less than the baseline does, and how to tell the two effects apart."""
    uplinks = {f.name: read_config({**default_config(), **f.settings}).uplink for f in found}
    usual = uplinks.get(baseline)
    others = {name: uplink for name, uplink in uplinks.items() if uplink != usual}
    if usual is None or not others:
        return ""
    told = ", ".join(f"{name} (uplink='{uplink}')" for name, uplink in others.items())
    uplink = next(iter(others.values()))
    return (
        f"Not only who trains differs, but also what is sent: {told}; {baseline} has "
        f"uplink='{usual}'. Add \"{baseline} uplink='{uplink}'\" to tell the two apart."
    )


def _stopped(found: Sequence[StrategyFinding], ruler: Ruler) -> str:
    """Say who was stopped early, and that this is not the last word on them."""
    if not found:
        return ""
    text = (
        f"{STOPPED} Stopped early for being behind, and compared there: a slow starter may catch "
        "up later. --to-the-end gives all of them the whole budget."
    )
    close = [f.name for f in found if judge(f.against["rounds"], ruler) != WORSE]
    return f"{text} Behind by no more than chance: {', '.join(close)}." if close else text


def signed(metric: Metric, gap: float) -> str:
    """Write a difference: that of shares in points.

    >>> signed(ACCURACY, 0.015), signed(Metric("mae"), -0.123456)
    ('+1.5', '-0.123')
    >>> signed(ACCURACY, -1e-6)  # no minus in front of nothing
    '+0.0'
    """
    return f"{round(100 * gap, 1) + 0.0:+.1f}" if metric.share else f"{gap + 0.0:+.3g}"


def _lead(gap: Difference, metric: Metric) -> str:
    """Write how far the best is ahead of one whose difference to it is given.

    >>> _lead(Difference(mean=-0.02, low=-0.03, high=-0.01, p_value=0.01, count=5), ACCURACY)
    '2.0 points [1.0, 3.0]'
    >>> mae = Metric("mae", higher_is_better=False)
    >>> _lead(Difference(mean=2.0, low=1.0, high=3.0, p_value=0.01, count=5), mae)
    '2 [1, 3]'
    """

    def size(value: float) -> str:
        lead = metric.gain(0.0, over=value)
        if metric.share:  # shares cannot differ by more, however few the seeds
            lead = max(-1.0, min(1.0, lead))
        return f"{100 * lead:.1f}" if metric.share else f"{lead:.3g}"

    text = f"{size(gap.mean)} points" if metric.share else size(gap.mean)
    if gap.count < FEW_SEEDS:  # the interval of fewer says nothing
        return text
    low, high = (gap.high, gap.low) if metric.higher_is_better else (gap.low, gap.high)
    return f"{text} [{size(low)}, {size(high)}]"
