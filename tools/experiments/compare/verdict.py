"""A comparison in words: what to run, and why; "no difference" where there is none."""

from collections.abc import Sequence

from ....core.config import default_config, read_config
from ....core.tasks.metrics import Metric, title, written
from ...report.formatting import data_size, plural
from ..measures import GOAL_NAMES
from .schema import BETTER, EQUAL, OPEN, WORSE, Document, Gap, StrategyFinding

FEW_SEEDS = 3
STOPPED = "*"


def verdict(found: Document) -> list[str]:
    """Return sentences, the answer first."""
    known = [finding for finding in found.strategies if finding.seeds]
    if not known or not known[0].to_the_end:
        return ["No strategy can be recommended: every run to the end failed."]
    best, others, metric = known[0], known[1:], found.judged_by
    uplinks = _compressed(found.strategies, found.baseline)
    lines = [
        _recommendation(best, others, found),
        _score(found.goal, best, others, metric),
        _sort_out("bytes", "At equal bytes", best, others, metric),
        _sort_out("work", "At equal work of the clients", best, others, metric),
        _other(found.goal, best, others, metric),
        _worst(best, others, metric),
        _evenness(known),
        _selecting(known),
        _stopped([finding for finding in known if not finding.to_the_end]),
        uplinks,
    ]
    if len(found.seeds) < FEW_SEEDS:
        few = f"{plural(len(found.seeds), 'seed')} cannot rule out chance; use --seeds 5."
        lines.insert(1, few)  # where it is read, not below the fold
    failed = [f"{f.name} ({plural(f.failed, 'run')})" for f in found.strategies if f.failed]
    if failed:
        lines.append(f"Failed: {', '.join(failed)}; runs.jsonl has the reasons.")
    return [line for line in lines if line]


def _recommendation(
    best: StrategyFinding, others: Sequence[StrategyFinding], found: Document
) -> str:
    baseline = found.baseline
    against = next((f.against["rounds"] for f in others if f.name == baseline), None)
    if not others:
        return f"Run {best.name}: there was nothing to compare it with."
    if against is None:
        return f"Run {best.name}: no other strategy ended ahead {GOAL_NAMES[found.goal]}."
    lead = _lead(against, found.judged_by)
    if against.verdict == WORSE:
        return f"Run {best.name}: it beats {baseline} by {lead}."
    if against.verdict == EQUAL:
        return f"Run {baseline}: it is level with the best, {best.name} ({lead} apart)."
    return (
        f"Run {baseline}: {best.name} came out ahead by {lead}, but that may be chance. "
        "More seeds would decide."
    )


def _score(
    goal: str, best: StrategyFinding, others: Sequence[StrategyFinding], metric: Metric
) -> str:
    level = best.score
    reached = written(metric, level.mean)
    text = f"{title(metric)} {GOAL_NAMES[goal]}: {best.name} reaches {reached}"
    if level.count >= FEW_SEEDS:
        low, high = level.low, level.high
        if metric.share:  # a share is within 0 and 1
            low, high = max(0.0, low), min(1.0, high)
        text += f" (95 % interval {written(metric, low)} to {written(metric, high)})"
    text += f" in {plural(best.rounds, 'round')}."
    return f"{text} {_sort_out('rounds', 'At equal rounds', best, others, metric)}".strip()


def _other(
    goal: str, best: StrategyFinding, others: Sequence[StrategyFinding], metric: Metric
) -> str:
    """Say how they compare on the other data: it is what the clients' own models are for."""
    (other,) = GOAL_NAMES.keys() - {goal}
    if not best.other.count:
        return ""
    reached = f"{written(metric, best.other.mean)} with {best.name}."
    text = f"{title(metric)} {GOAL_NAMES[other]}: {reached}"
    text = f"{text} {_sort_out('other', 'At equal rounds', best, others, metric)}".strip()
    if not any(finding.against["other"].verdict == BETTER for finding in others):
        return text
    return f"{text} Add --goal {other} if these data are what counts."


def _worst(best: StrategyFinding, others: Sequence[StrategyFinding], metric: Metric) -> str:
    if not best.worst.count:
        return "The worst tenth of clients was not measured: data.client-test-share is 0."
    text = f"The worst tenth of clients has {written(metric, best.worst.mean)} with {best.name}."
    return f"{text} {_sort_out('worst', 'At equal rounds', best, others, metric)}".strip()


def _sort_out(
    axis: str, when: str, best: StrategyFinding, others: Sequence[StrategyFinding], metric: Metric
) -> str:
    """Say who is better than the best in something, equal to it, not decided, or worse."""
    kinds: dict[str, list[str]] = {BETTER: [], EQUAL: [], OPEN: [], WORSE: []}
    for finding in others:
        gap = finding.against[axis]
        if gap.count:
            mark = "" if finding.to_the_end else STOPPED
            kinds[gap.verdict].append(f"{finding.name}{mark} ({signed(metric, gap.mean)})")
    told = [f"{', '.join(names)} {kind}" for kind, names in kinds.items() if names]
    return f"{when}, against {best.name}: {'; '.join(told)}." if told else ""


def _evenness(known: Sequence[StrategyFinding]) -> str:
    measured = [finding for finding in known if finding.evenness.count]
    if not measured:
        return ""
    ranked = sorted(measured, key=lambda finding: -finding.evenness.mean)
    most, least = ranked[0], ranked[-1]
    if least.evenness.mean > most.evenness.mean - 0.005:
        return f"All strategies use clients equally evenly (Jain's index {most.evenness.mean:.2f})."
    return (
        f"Clients take part most evenly with {most.name} (Jain's index {most.evenness.mean:.2f}; "
        f"1 is all alike), least evenly with {least.name} ({least.evenness.mean:.2f})."
    )


def _selecting(known: Sequence[StrategyFinding]) -> str:
    costly = [
        f for f in known if f.costs["bytes for selecting"].mean >= 0.01 * f.costs["bytes"].mean
    ]
    if not costly:
        return "Questions to clients take less than 1 % of the bytes with every strategy."
    costs = [(f.name, *f.selecting_a_round()) for f in costly]
    told = [f"{name} {data_size(size)} and {1e3 * time:.0f} ms" for name, size, time in costs]
    rest = "" if len(costly) == len(known) else "; the others take less than 1 % of their bytes"
    return f"Questions to clients and choosing take per round: {', '.join(told)}{rest}."


def _compressed(found: Sequence[StrategyFinding], baseline: str) -> str:
    """Say who also sends less than the baseline does, and how to tell the two effects apart."""
    uplinks = {f.name: read_config({**default_config(), **f.settings}).uplink for f in found}
    usual = uplinks.get(baseline)
    alone = {u for name, u in uplinks.items() if name == f"{baseline} uplink={u}"}
    others = {
        name: uplink
        for name, uplink in uplinks.items()
        if uplink != usual and name != f"{baseline} uplink={uplink}"
    }
    if usual is None or not others:
        return ""
    told = ", ".join(f"{name} (uplink='{uplink}')" for name, uplink in others.items())
    text = f"The strategies differ in more than selection: {told}; {baseline} has uplink='{usual}'."
    missing = [uplink for uplink in others.values() if uplink not in alone]
    hint = f" Add \"{baseline} uplink='{missing[0]}'\" to separate the effects." if missing else ""
    return text + hint


def _stopped(found: Sequence[StrategyFinding]) -> str:
    """Say who was stopped early, and that this is not the last word on them."""
    if not found:
        return ""
    text = (
        f"{STOPPED} Stopped early for being behind, and compared there: a slow starter may catch "
        "up later. --to-the-end gives all of them the whole budget."
    )
    close = [f.name for f in found if f.against["rounds"].verdict != WORSE]
    return f"{text} Behind by no more than chance: {', '.join(close)}." if close else text


def signed(metric: Metric, gap: float) -> str:
    """Write a difference: that of shares in points."""
    return f"{round(100 * gap, 1) + 0.0:+.1f}" if metric.share else f"{gap + 0.0:+.3g}"


def _lead(gap: Gap, metric: Metric) -> str:
    """Write how far the best is ahead of one whose difference to it is given."""

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
