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
            started = clock()
            way()
            if repeat:
                seconds[name].append(clock() - started)
    return {name: statistics.median(values) for name, values in seconds.items()}
