"""A run in words, for the head of the page and for the terminal."""

from collections import Counter
from html import escape
from statistics import median

from ...core.config.run_config import AXIS_DEFAULTS
from ...core.log.events import Decided, InputsScaled, PrivacySpent, SparseUplinkUsed
from ...core.methods.catalogue import presets
from ...core.tasks.metrics import label, title, written
from .formatting import data_size, duration, jain_index, percent, plural
from .history import History

_NO_END = "unknown (no end in the log)"
_OTHER_BYTES = "of tests on clients and of asking their names, not counted above"
ENDINGS = {
    "completed": "The run completed",
    "early-stop": "The run stopped early, as its rule says",
    "interrupted": "The run was interrupted",
    "failed": "The run failed",
}


def ending(history: History) -> str:
    """Say how the run ended."""
    if history.finish is None:
        return (
            "The log has no end: the run is still going or was killed. "
            f"Known so far: {plural(history.rounds_done, 'round')} in {duration(history.seconds)}."
        )
    reason, message = history.finish.reason, history.finish.message
    text = ENDINGS.get(reason, f"The run ended ({reason})")
    text += f" after {plural(history.rounds_done, 'round')} and {duration(history.seconds)}"
    return f"{text}: {message}" if message else f"{text}."


def ended_well(history: History) -> bool:
    """Return whether the run came to its intended end."""
    return history.finish is not None and history.finish.reason in ("completed", "early-stop")


def last_and_best(history: History) -> tuple[tuple[int, float], tuple[int, float]] | None:
    """Return round and main metric of the last and of the best (first such) evaluation, if any."""
    known = list(zip(*history.series(history.score_column), strict=True))
    if not known:
        return None
    best = history.metric.best(value for _, value in known)
    return known[-1], next(pair for pair in known if pair[1] == best)


def answer(history: History) -> str:
    """Say what came of the run, in one sentence or two."""
    if history.finish is None or history.finish.reason != "failed":
        return score_sentence(history)
    done = history.rounds_done
    if not done:
        return "The run failed before its first round was over."
    return f"The run failed after {plural(done, 'round')}. {score_sentence(history)}"


def score_sentence(history: History) -> str:
    """Say where the main metric went, and where the others ended, on the data that decide."""
    known, metric = last_and_best(history), history.metric
    if known is None:
        return f"No {label(metric)} was reported."
    (last_round, last), (best_round, best) = known
    end = (
        "that is its best"
        if last == best
        else f"the best was {written(metric, best)} in round {best_round}"
    )
    where = f"{whose(history)}, on average" if history.judged_on_clients else whose(history)
    text = f"{title(metric)} after round {last_round} is {written(metric, last)} {where}; {end}."
    if not metric.higher_is_better:
        text += " Lower is better."
    others = figures(history, own=history.judged_on_clients)[1:]
    return f"{text} Also there: {', '.join(others)}." if others else text


def whose(history: History) -> str:
    """Say whose data decide in a run."""
    return "on clients' own data" if history.judged_on_clients else "on the server's test data"


def figures(history: History, *, own: bool) -> list[str]:
    """Write the last value of each metric on the clients' own data, or on the server's."""
    known = [(m, history.series(history.column_of(m, own=own))[1]) for m in history.metrics]
    return [f"{label(metric)} {written(metric, values[-1])}" for metric, values in known if values]


def worst_tenth(history: History) -> str:
    """Write the main metric of the worst tenth of clients on their own data; empty if unknown."""
    values = history.series(f"clients-{history.metric.name}-worst-10")[1]
    return written(history.metric, values[-1]) if values else ""


def other_data(history: History) -> list[tuple[str, str]]:
    """Return what else was measured, each with the data that it was measured on."""
    own, worst = history.judged_on_clients, worst_tenth(history)
    also, others = figures(history, own=own)[1:], figures(history, own=not own)
    where = "on the server's test data" if own else "on clients' own data"
    pairs = [
        (f"also {whose(history)}", ", ".join(also)),
        ("worst tenth of clients", f"{worst} on their own data" if worst else ""),
        (where, ", ".join(others)),
    ]
    return [(name, value) for name, value in pairs if value]


def own_data_sentence(history: History) -> str:
    """Say how clients fare on their own data, where they were asked beside the server."""
    asked = history.series(f"clients-{history.metric.name}-mean")[1]
    if history.own_models and not asked:
        return (
            "Clients use different models here, but none was tested on the data of the clients "
            "that use it: set data.client-test-share and fraction-evaluate. The server's test "
            "data represent all clients."
        )
    if not asked or not history.series(history.metric.name)[0]:
        return ""
    worst, server = worst_tenth(history), ", ".join(figures(history, own=False))
    if history.judged_on_clients:
        least = f" The worst tenth of clients has {worst}." if worst else ""
        return (
            "Clients may use different models here, so each model is judged on the data of the "
            f"clients that use it.{least} On the server's test data, which represent all "
            f"clients: {server}."
        )
    least = f"; the worst tenth of clients has {worst}" if worst else ""
    return f"On clients' own data, on average: {', '.join(figures(history, own=True))}{least}."


def preset_sentence(history: History) -> str:
    """Say what the preset of a run sets, so that nothing is credited to the wrong part."""
    config = history.started.config
    name = str(config.get("strategy") or "")
    told = [
        f"{axis}='{value}'" + ("" if now == value else f" (here {now!r})")
        for axis, value in presets().get(name, {}).items()
        for now in (config.get(axis, value),)
        if value != AXIS_DEFAULTS[axis] or now != value
    ]
    return f"strategy='{name}' sets {', '.join(told)}." if told else ""


def traffic_sentence(history: History) -> str:
    """Say what was sent down and up, and how much of it was for selecting."""
    down, up, selecting, testing = (
        history.total(f"bytes-{part}") for part in ("down", "up", "select", "test")
    )
    total = down + up + selecting
    if not total:
        return "No traffic was counted."
    tests = (
        f" Testing on clients and asking for their names took {data_size(testing)} more."
        if testing
        else ""
    )
    instead = _instead(history)
    return (
        f"{data_size(down)} went down to clients, {data_size(up)} came up from them"
        f"{instead and ' '}{instead}, and selecting took another {data_size(selecting)} "
        f"({percent(selecting / total)} of the three).{tests}"
    )


def _instead(history: History) -> str:
    """Say what the bytes up would have been without a sparse uplink, if there was one."""
    if not history.series("bytes-up-dense")[0]:
        return ""
    rows = history.rows.values()
    dense = sum(row.get("bytes-up-dense", row.get("bytes-up", 0)) for row in rows)
    return f"(as whole models: {data_size(dense)})"


def uplink_sentence(history: History) -> str:
    """Say what else to send, where the updates do not suit a sparse uplink."""
    told = [event.advice for events in history.noted(SparseUplinkUsed).values() for event in events]
    return f"{told[0][0].upper()}{told[0][1:]}." if told else ""


def participation_sentence(history: History) -> str:
    """Say how evenly clients took part in training."""
    counts = history.participation()
    index = jain_index(counts)
    if index is None:
        return "No client was chosen for training yet."
    longest = int(history.ages().max(initial=0))
    least, middle, most = min(counts), median(counts), max(counts)
    trained = sum(count > 0 for count in counts)
    often = f"from {least} to {plural(most, 'time')}, median {middle:g}"
    if least == most:
        often = f"each {plural(most, 'time')}"
    return (
        f"{trained} of {plural(len(counts), 'client')} were chosen at least once: {often}. "
        f"The longest that any of them waited was {plural(longest, 'round')}. "
        f"Jain's index of evenness is {index:.2f} "
        f"(1: all equally often; {1 / len(counts):.2g}: always the same one)."
    )


def trouble_counts(history: History) -> tuple[int, int, int]:
    """Count requests that failed, replies that came late, replies that were set aside."""
    fates = Counter(problem.fate for problem in history.problems)
    return fates["failed"], fates["late"], fates["quarantined"]


def trouble_sentence(history: History) -> str:
    """Say what went wrong with clients."""
    failed, late, quarantined = trouble_counts(history)
    if not history.problems:
        return "No request failed, none was late and no reply was set aside."
    return (
        f"{plural(failed, 'request')} failed, {late} came too late, and "
        f"{plural(quarantined, 'reply was', 'replies were')} set aside (quarantined)."
    )


def scaling_sentence(history: History) -> str:
    """Say by what inputs were scaled, if they were."""
    known = history.last(InputsScaled)
    if known is None:
        return ""
    return (
        f"Inputs are scaled by the means and spreads that {plural(known.clients, 'client')} "
        f"reported ({plural(known.features, 'feature')})."
    )


def key_figures(history: History) -> list[tuple[str, str, str]]:
    """Return the run's key figures: name, value, and what belongs to it."""
    known = last_and_best(history)
    (last_round, last), (best_round, best) = known or ((0, None), (0, None))
    counts = history.participation() or [0]
    least, middle, most = min(counts), median(counts), max(counts)
    failed, late, quarantined = trouble_counts(history)
    often = f"{least} to {most}, median {middle:g}"
    metric, name = history.metric, label(history.metric)
    on, testing = whose(history), history.total("bytes-test")
    waited = history.total("connect-seconds")
    starting = f", {duration(waited)} for clients to start" if waited >= 1 else ""
    choosing = f"of questions to clients, {duration(history.total('select-seconds'))} of choosing"

    def score(what: str, value: float | None, current: int) -> tuple[str, str, str]:
        where = f"{on} (round {current})" if known else ""
        return f"{what} {name}", written(metric, value), where

    return [
        ("ended", (history.finish.reason or "unknown") if history.finish else _NO_END, ""),
        ("rounds", f"{history.rounds_done}", f"in {duration(history.seconds)}{starting}"),
        score("final", last, last_round),
        score("best", best, best_round),
        *((*pair, "") for pair in other_data(history)),
        ("bytes down", data_size(history.total("bytes-down")), "to clients"),
        ("bytes up", data_size(history.total("bytes-up")), _instead(history) or "from clients"),
        ("bytes selecting", data_size(history.total("bytes-select")), choosing),
        *([("other bytes", data_size(testing), _OTHER_BYTES)] if testing else []),
        ("clients chosen", f"{sum(c > 0 for c in counts)} of {history.population}", ""),
        ("times chosen", often if least < most else f"{most} each", ""),
        ("failures", f"{failed} failed, {late} late", ""),
        ("quarantined", f"{quarantined}", ""),
        *([("privacy", privacy(history), "")] if history.delta is not None else []),
    ]


def summary(history: History) -> list[tuple[str, str]]:
    """Return the key figures as pairs of name and value, for a terminal."""
    return [(name, f"{value} {more}".strip()) for name, value, more in key_figures(history)]


def privacy(history: History) -> str:
    """Return what the run has given away of the client that was asked most often."""
    spent, last = history.series("epsilon")[1], history.last(PrivacySpent)
    amount = f"epsilon {spent[-1]:.2f}" if spent else "no bound on epsilon"
    if last is not None and last.budget is not None:
        amount += f" of a budget of {last.budget:g}"
    return f"{amount} at delta {history.delta:g}"


def decisions_section(history: History) -> str:
    """Say which parts the run switched on by what it saw."""
    found = [event for events in history.noted(Decided).values() for event in events]
    lines = "".join(
        f"<li>Round {event.round}, {escape(event.part)}: {escape(event.seen)}; from then on, "
        f"{escape(event.decision)}.</li>"
        for event in found
    )
    return f"<h2>What the run decided</h2><ul>{lines}</ul>" if lines else ""
