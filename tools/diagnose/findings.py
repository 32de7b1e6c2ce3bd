"""What is wrong with a federation: one line per possible problem."""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
from scipy import stats

from ...core.wire.keys import AS_IT_CAME
from ...selectors.cohorts.evidence import Evidence
from ...selectors.cohorts.separation import separation
from ...selectors.diagnosis import skew
from ...selectors.diagnosis.doubtful_labels import LEARNED, ROUNDS, Doubts, doubts
from ...selectors.diagnosis.drift import turned
from ...selectors.diagnosis.learning_curve import rounds_to
from ..report.formatting import data_size, duration
from .evidence import RunEvidence

_FEW = 8  # clients: fewer do not show how clients differ
_ENOUGH = 3  # rounds that show how clients differ
_MOST_GROUPS, _WITHIN = 8, 0.15  # share of the variance between clients that may be within groups
_GAIN = 0.01  # of the main metric: a gain below it is not worth a model of one's own
_CONSISTENT = 0.2  # gain of a client's own model that shows that its labels make sense
_SLOW, _SECONDS = 3.0, 0.5  # times the median, and more than that by so much
_NAMED = 5  # clients in a line


class CannotTell(Exception):
    """What is missing for a finding."""


@dataclass
class Finding:
    """One line of a diagnosis."""

    text: str
    found: bool | None = None  # None if it cannot be told
    value: float | None = None  # how much of it there is
    clients: dict[str, Any] = field(default_factory=dict)  # what it says of single clients


def findings(seen: RunEvidence, target: float | None = None) -> dict[str, Finding]:
    """Return all lines by name; a part that fails is left out and says so."""
    found, parts = {}, dict(PARTS)
    parts["target"] = partial(rounds_and_bytes, target=target)
    for name, part in parts.items():
        try:
            found[name] = part(seen)
        except CannotTell as reason:
            found[name] = Finding(f"unknown: {reason}")
        except Exception as error:  # whatever clients sent: the other parts go on
            found[name] = Finding(f"left out: {type(error).__name__}: {error}")
    return found


def _enough(seen: RunEvidence) -> None:
    count = len(seen.first("num-examples"))
    if count < _FEW:
        raise CannotTell(f"clients seen: {count}; needed: {_FEW}")


def _named(keys: Any) -> str:
    names = list(keys)
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return ", ".join(names[:_NAMED]) + more


def label_skew(seen: RunEvidence) -> Finding:
    """Compare what training did to the output layers of clients, and would do by chance."""
    _enough(seen)
    heads, samples = seen.first("bias-update"), seen.first("probed")
    if not heads:
        raise CannotTell("the model has no linear output layer with a bias")
    rate = seen.started.number("learning-rate") or 1.0
    shares, classes = np.array(list(heads.values())) / rate, bool(seen.first("agreement"))
    loss = float(skew.usual([[value] for value in seen.first("loss").values()])[0])
    # With the squared error the bias moves by twice the residual, whose mean is common to all.
    numbers = 4 * loss / shares.shape[1] - float(np.sum(skew.usual(shares) ** 2))
    variance = 1 - 1 / shares.shape[1] if classes else max(numbers, 1e-9)
    ratio = skew.dispersion(shares, [samples[key] for key in heads], variance)
    what, found = "labels" if classes else "targets", ratio > skew.SKEWED
    text = f"{what} differ between clients {ratio:.1f} times as much as by chance"
    return Finding(text if found else f"none: {text}", found, ratio)


def quantity_skew(seen: RunEvidence) -> Finding:
    """Compare how many samples clients have."""
    sizes = seen.first("num-examples")
    uneven = skew.quantity_skew(list(sizes.values()))
    low, middle, high = np.quantile(list(sizes.values()), [0.1, 0.5, 0.9])
    text = f"four in five clients have {low:.0f} to {high:.0f} samples, the median is {middle:.0f}"
    found = uneven > skew.UNEVEN
    return Finding(text if found else f"none: {text}", found, uneven, sizes)


def groups(seen: RunEvidence) -> Finding:
    """Test whether the updates of clients with sound and steady data fall into groups.

    Where data of some clients change, those of others may do so unnoticed, and look like a group:
    what was seen before counts, if it is enough.
    """
    _enough(seen)
    changed, doubted, collected = _changed(seen), _doubted(seen)[1], Evidence()
    first = min(changed.values(), default=0)
    directions = {n: rows for n, rows in seen.directions(doubted).items() if n < first}
    if len(directions) < _ENOUGH:
        directions = seen.directions({*changed, *doubted})
    for number, rows in directions.items():
        collected.add(list(rows), list(rows.values()), number)
    known = collected.differences()
    result = separation(known, _MOST_GROUPS, _WITHIN)
    if not result.clear(_WITHIN):
        text = f"none: the best split leaves {result.within:.0%} of the variance within its parts"
        chance = f"chance leaves {result.chance:.0%}, groups less than half of that"
        needed = f"groups leave at most {_WITHIN:.0%}" if result.within > _WITHIN else chance
        return Finding(f"{text}; {needed}", False)
    sizes = ", ".join(map(str, np.bincount(result.labels)))
    sure = "surely" if result.very_clear(_WITHIN) else "likely"
    text = (
        f"{sure} {result.parts}, of {sizes} clients: {result.within:.0%} of the variance is within "
        f"them; chance leaves at least {result.chance:.0%}"
    )
    return Finding(text, True, result.parts, dict(zip(known.keys, result.labels, strict=True)))


def labels(seen: RunEvidence) -> Finding:
    """Compare how often models give the labels of clients and those of the server."""
    if not seen.first("agreement"):
        raise CannotTell("samples have no classes")
    if "clean-accuracy" not in seen.rounds[-1].facts:
        raise CannotTell("the server holds no clean samples: labels may be wrong, or difficult")
    _enough(seen)
    found, where = _doubted(seen)
    if found is None:
        now = seen.rounds[-1].facts["clean-accuracy"]
        raise CannotTell(
            f"the model predicts {now:.0%} of the server's labels; needed: {LEARNED:.0%} in "
            f"{ROUNDS} rounds"
        )
    texts = [f"about {found.wrong:.0%} at most clients"] if found.everywhere else []
    texts += [f"many at {_named(where)}"] if where else []
    text = "; ".join(texts) or "none: the model predicts clients' labels as often as the server's"
    return Finding(text, bool(texts), found.wrong, found.shares)


def _doubted(seen: RunEvidence) -> tuple[Doubts | None, list[str]]:
    """Return what the model makes of labels, and whose are doubtful for no other reason.

    Where data changed, or where a model of the client's own gives its labels well, these are right.
    """
    clean = [event.facts.get("clean-accuracy", 0.0) for event in seen.rounds]
    sizes, samples = seen.first("num-examples"), seen.rounds[-1].facts["clean-samples"]
    numbers = np.array(list(sizes.values()), dtype=np.float64)
    found = doubts(list(sizes), seen.table("agreement"), numbers, clean, samples)
    sound = {*_changed(seen), *(k for k, gain in _gains(seen).items() if gain > _CONSISTENT)}
    return found, [] if found is None else [key for key in found.clients if key not in sound]


def _changed(seen: RunEvidence) -> dict[str, int]:
    return turned({n: (list(r), list(r.values())) for n, r in seen.directions().items()})


def _gains(seen: RunEvidence) -> dict[str, float]:
    """Return what the model that each client gets is better by than the one that came."""
    columns, sign = seen.own.columns, 1 if seen.started.metrics[0].higher_is_better else -1
    told = columns.get(AS_IT_CAME, ()), columns.get("served", ())
    rows = zip(seen.own.clients, *told, strict=False)
    return {k: sign * (after - before) for k, before, after in rows if None not in (before, after)}


def drift(seen: RunEvidence) -> Finding:
    """Look for clients whose updates turned."""
    _enough(seen)
    if len(seen.rounds) < 4:
        raise CannotTell(f"rounds seen: {len(seen.rounds)}; needed: 4")
    changed = _changed(seen)
    text = f"data changed, from round {min(changed.values(), default=0)} on: {_named(changed)}"
    none = f"none in {len(seen.rounds)} rounds"
    return Finding(text if changed else none, bool(changed), clients=changed)


def slow(seen: RunEvidence) -> Finding:
    """Look at who takes long, and who does not answer."""
    times = {k: float(s) for told in seen.by_client("seconds") for k, s in told.items()}
    middle = float(np.median(list(times.values()))) if times else 0.0
    late = {k: s for k, s in times.items() if s > _SLOW * middle and s > middle + _SECONDS}
    often = max(1, len(seen.rounds) // 4)
    away = [key for key, count in seen.missed.most_common() if count >= often]
    parts = []
    if late:
        worst = duration(max(late.values()))
        parts.append(f"slow, up to {worst} (median {duration(middle)}): {_named(late)}")
    if away:
        parts.append(f"away or late in {often} rounds or more: {_named(away)}")
    return Finding("; ".join(parts) or "nobody", bool(parts), clients=times)


def own_models(seen: RunEvidence) -> Finding:
    """Compare the model that each client gets with the one that came."""
    metric, own = seen.started.metrics[0], _gains(seen)
    if len(own) < 2:
        raise CannotTell("clients hold no data out, or the run ended before they tested")
    gains = np.array(list(own.values()))
    half = stats.t.ppf(0.975, len(gains) - 1) * stats.sem(gains)
    mean, found = float(gains.mean()), bool(gains.mean() - half > _GAIN)

    def shown(value: float) -> str:
        return f"{100 * value:+.1f}" if metric.share else f"{value:+.3g}"

    unit = " points" if metric.share else ""
    between = f"95 % interval {shown(mean - half)} to {shown(mean + half)}"
    text = f"tuning on own data improves {metric.name} by {shown(mean)}{unit} ({between})"
    clear = f"; clear if all of the interval is above {shown(_GAIN)}"
    return Finding(text if found else f"no clear gain: {text}{clear}", found, mean, own)


def rounds_and_bytes(seen: RunEvidence, target: float | None) -> Finding:
    """Extrapolate the learning curve to a target."""
    metric, numbers = seen.started.metrics[0], sorted(seen.scores)
    if not numbers:
        raise CannotTell("the server holds no test data")
    here = f"{metric.name} {seen.scores[numbers[-1]]:.3f} after {numbers[-1]} rounds"
    if target is None:
        return Finding(f"{here}; --target estimates the rounds to another value")
    # The gap to what is perfect: 1 of what is to rise, 0 of an error
    sign, best = (-1, 1) if metric.higher_is_better else (1, 0)
    gaps = [sign * (seen.scores[number] - best) for number in numbers]
    forecast = rounds_to(gaps, sign * (target - best))
    if forecast is None:
        return Finding(f"{here}; these rounds do not show how many {target} takes")
    middle, least, most = forecast
    size = data_size(middle * seen.bytes / len(seen.rounds))
    takes = f"{target} takes about {middle:.0f} rounds ({least:.0f} to {most:.0f}), {size}"
    return Finding(f"{here}; {takes}", False, middle)


PARTS: dict[str, Callable[[RunEvidence], Finding]] = {
    "label skew": label_skew,
    "quantity skew": quantity_skew,
    "groups": groups,
    "doubtful labels": labels,
    "drift": drift,
    "slow or away": slow,
    "own models": own_models,
}
