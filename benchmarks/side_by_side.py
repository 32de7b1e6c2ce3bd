"""How long several ways to do the same take, measured in turns.

Other load on the machine then hits all of them, so that the ratio of the medians is what counts.
"""

import statistics
import time
from collections.abc import Callable, Mapping
from typing import Any


def side_by_side(
    ways: Mapping[str, Callable[[], Any]],
    repeats: int,
    clock: Callable[[], float] = time.perf_counter,
    at_least: float = 0.0,
) -> dict[str, float]:
    """Return the median seconds of each, measured in turns after one turn to warm up.

    Parameters
    ----------
    ways : mapping of callables
        What to measure, by name.
    repeats : int
        Turns that are measured.
    clock : callable
        Wall time, or ``time.process_time``, which counts work alone.
    at_least : float (default: 0.0)
        Seconds of a turn: what takes less is done several times in a row, as it is in use, and the
        mean counts. Caches are then as full of it as they are in use.

    Examples
    --------
    >>> calls = []
    >>> list(side_by_side({"one": lambda: calls.append(1), "two": lambda: calls.append(2)}, 1))
    ['one', 'two']
    >>> calls
    [1, 2, 1, 2]
    """
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    for repeat in range(repeats + 1):
        for name, way in ways.items():
            started, times = clock(), 1
            way()
            while clock() - started < at_least:
                way()
                times += 1
            if repeat:
                seconds[name].append((clock() - started) / times)
    return {name: statistics.median(values) for name, values in seconds.items()}
