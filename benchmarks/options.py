"""Options with and without: what each brings and costs, over seeds.

``python -m forager.benchmarks.options budget`` (or ``uplink``, ``time``, ``sites``, ``best``,
``value``, ``work``) prints a row per setting; ``work`` looks for data in ``FORAGER_DATA``.
``time --speeds devices.npz`` takes the speeds of real devices: arrays ``computation`` (milliseconds
per sample) and ``communication_kbps``, of which each seed draws some.
"""

import argparse
import json
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from statistics import mean, median, stdev
from typing import Any

import numpy as np
from safetensors import safe_open

from ..client_app.batch import ClientBatch
from ..core.config import read_config
from ..core.learning.job import Job
from ..core.learning.train_settings import local_steps, train_settings
from ..core.log.events import Contributed, Exchanged, PrivacySpent, RoundFinished, as_events
from ..core.tasks import load_task
from ..server_app.run_folder import RunFolder
from ..tools.engine.local import run_local
from ..tools.engine.simulated_transport import DeviceSpeeds
from ..tools.experiments.tables import Table
from .buffered import TARGET, time_to_target
from .studies.no_harm import CLIENTS, setting_of
from .studies.runs import run_study

Settings = Mapping[str, Any]

COMMON: Settings = {
    **{"num-clients": 30, "clients-per-round": 10, "num-server-rounds": 40, "model": "mlp"},
    **{"local-epochs": 2, "evaluate-every": 10, "checkpoint.every": 0, "report": False},
}
_NOISE: Settings = {"privacy": "central-dp", "dp.clip": 0.5, "dp.noise-multiplier": 2.0}
BUDGETS: dict[str, Settings] = {
    "no budget": _NOISE,
    "dp.budget=20": {**_NOISE, "dp.budget": 20.0},
    "dp.budget=10": {**_NOISE, "dp.budget": 10.0},
}
UPLINKS: dict[str, Settings] = {
    "dense": {},
    "int8": {"uplink": "int8"},
    "top-k": {"uplink": "top-k"},
    "dense, downlink changes": {"downlink": "changes"},
    "int8, downlink changes": {"uplink": "int8", "downlink": "changes"},
}
_LIARS: Settings = {"corruption.clients": 0.2}  # a fifth trains on random labels
SITES: dict[str, Settings] = {
    "mean": {},
    "weighting uniform": {"weighting": "uniform"},
    "median": {"aggregator": "median"},
    "multi-krum": {"aggregator": "multi-krum"},
    "clipped-mean": {"aggregator": "clipped-mean"},
    "fltrust": {"aggregator": "fltrust"},
}
_NOISY: Settings = {"noise": "closed-set", "corruption.rate": 0.4, "local-epochs": 10}
BESTS: dict[str, Settings] = {
    "fedavg, right labels": {"local-epochs": 10},
    "fedavg, two fifths of the labels wrong": _NOISY,
    "gcfl, two fifths of the labels wrong": {**_NOISY, "strategy": "gcfl"},
}
VALUES: dict[str, Settings] = {"without": _LIARS, "with": {**_LIARS, "leave-one-out": True}}
_CORESETS: Settings = {"work": "coreset-by-speed", "data-selector": "crust"}
WAYS: dict[str, Settings] = {
    "wait for all": {},
    "deadline auto": {"round.deadline": "auto"},
    "deadline auto, late counts": {"round.deadline": "auto", "aggregation.late": True},
    "over-commit 0.3": {"round.over-commit": 0.3},
    "over-commit 0.3, late counts": {"round.over-commit": 0.3, "aggregation.late": True},
    "buffer 5": {"aggregation.buffer": 5},
    "work by speed": {"work": "by-speed"},
    "work by speed, over-commit 0.3": {"work": "by-speed", "round.over-commit": 0.3},
    "coresets by speed": _CORESETS,
    "coresets by speed, over-commit 0.3": {**_CORESETS, "round.over-commit": 0.3},
}
FLAD: Settings = {"client-selector": "flad", "local-epochs": 5}
_BY_LOSS: Settings = {**FLAD, "work": "by-loss"}
WORKS: dict[str, Settings] = {
    "flad, 5 epochs": FLAD,
    "by-loss, 1 to 5 epochs": _BY_LOSS,
    "by-loss, 1 to 5 epochs, 120 rounds": {**_BY_LOSS, "num-server-rounds": 120},
    "flad, 3 epochs": {**FLAD, "local-epochs": 3},
    "by-loss, 1.2 to 6 epochs": {**_BY_LOSS, "local-epochs": 6},
}


def plain(title: str, settings: Settings, seeds: Sequence[int]) -> list[str]:
    """Return rounds, epsilon, bytes per round and accuracy of one setting."""
    found = []
    for seed in seeds:
        with tempfile.TemporaryDirectory() as folder:
            result = run_local({**COMMON, **settings, "seed": seed, "output-dir": folder})
            events = list(as_events(RunFolder.open(result.folder).read_events()))
            rounds = [e for e in events if isinstance(e, Exchanged) and e.kind == "train"]
            spent = [e.epsilon_most or 0.0 for e in events if isinstance(e, PrivacySpent)]
            up, down = (sum(e.bytes_up for e in rounds), sum(e.bytes_down for e in rounds))
            each = (len(rounds), max(spent, default=0.0), up / len(rounds), down / len(rounds))
            found.append((*each, float(result.rounds[-1]["accuracy"])))
    columns = list(zip(*found, strict=True))
    forms = ("{:.0f}", "{:.2f}", "{:,.0f}", "{:,.0f}")
    told = [form.format(mean(own)) for form, own in zip(forms, columns, strict=False)]
    return [title, *told, _spread(columns[-1], 3)]


def among_sites(title: str, settings: Settings, seeds: Sequence[int]) -> list[str]:
    """Return the accuracy of honest sites of unequal size, and with a fifth on random labels."""
    row = [title]
    for more in ({}, _LIARS):
        found = [_last({**settings, **more, "seed": seed}) for seed in seeds]
        row.append(_spread(found, 3))
    return row


def best_and_last(title: str, settings: Settings, seeds: Sequence[int]) -> list[str]:
    """Return the accuracy of the last and of the best model, and the round of the best."""
    found = []
    for seed in seeds:
        with tempfile.TemporaryDirectory() as folder:
            asked = {**COMMON, "evaluate-every": 1, **settings, "seed": seed}
            result = run_local({**asked, "output-dir": folder})
            with safe_open(RunFolder.open(result.folder).best_path(), "numpy") as file:
                best = json.loads(file.metadata()["best"])
            found.append((result.rounds[-1]["accuracy"], best["value"], best["round"]))
    last, most, when = zip(*found, strict=True)
    return [title, _spread(last, 3), _spread(most, 3), ", ".join(map(str, when))]


def valued(title: str, settings: Settings, seeds: Sequence[int]) -> list[str]:
    """Return the seconds of a round, the accuracy, and who has the lowest values."""
    seconds, accuracies, found = [], [], []
    for seed in seeds:
        with tempfile.TemporaryDirectory() as folder:
            config = {**COMMON, **settings, "seed": seed, "output-dir": folder}
            result = run_local(config)
            events = list(as_events(RunFolder.open(result.folder).read_events()))
        seconds.append(median(e.seconds or 0.0 for e in events if isinstance(e, RoundFinished)))
        accuracies.append(float(result.rounds[-1]["accuracy"]))
        spared: dict[str, float] = defaultdict(float)
        for event in events:
            if isinstance(event, Contributed):
                for client, value in zip(event.clients, event.values, strict=False):
                    spared[client] += value or 0.0
        if spared:
            liars, lowest = _liars(config), sorted(spared, key=lambda key: spared[key])
            found.append(len(liars & {int(key) for key in lowest[: len(liars)]}) / len(liars))
    told = f"{mean(found):.0%}" if found else "-"
    return [title, f"{1000 * mean(seconds):.0f}", _spread(accuracies, 3), told]


def _liars(settings: Settings) -> set[int]:
    """Return the clients that train on random labels."""
    config = read_config(dict(settings))
    task, count = load_task(config.task_spec()), config.num_clients
    right = [task.client_data(i, count).clean.float().mean() for i in range(count)]
    return {number for number, share in enumerate(right) if share < 0.5}


def _last(settings: Settings) -> float:
    with tempfile.TemporaryDirectory() as folder:
        result = run_local({**COMMON, **settings, "output-dir": folder})
        return float(result.rounds[-1]["accuracy"])


def timed(title: str, settings: Settings, seeds: Sequence[int]) -> list[str]:
    """Return the simulated seconds, and updates, until the target is reached."""
    found = [time_to_target(seed, **settings) for seed in seeds]
    done = [each for each in found if each is not None]
    times = [seconds for seconds, _ in done]
    updates = f"{mean(n for _, n in done):.0f}" if done else "-"
    return [title, _spread(times, 0), updates, f"{len(done)} of {len(found)}"]


def worked(title: str, settings: Settings, seeds: Sequence[int]) -> list[str]:
    """Return the local steps of a run, its accuracy, and that of the worst tenth of clients."""
    row = [title]
    for data in ("digits", "WISDM"):
        found = []
        for seed in seeds:
            with tempfile.TemporaryDirectory() as folder, counted_steps() as taken:
                own = {**CLIENTS, **setting_of(data), **settings, "seed": seed}
                last = run_study({**own, "output-dir": folder}).rounds[-1]
            found.append((sum(taken), last["accuracy"], last["clients-accuracy-worst-10"]))
        steps, accuracy, worst = zip(*found, strict=True)
        row += [f"{mean(steps):,.0f}", _spread(accuracy, 3), _spread(worst, 3)]
    return row


@contextmanager
def counted_steps() -> Iterator[list[int]]:
    """Return a list to which the local steps of a run are added."""
    taken: list[int] = []
    jobs = ClientBatch.jobs

    def counted(batch: ClientBatch) -> list[Job]:
        found = jobs(batch)
        if batch.trains:
            usual = train_settings(batch.config, batch.round)
            taken.extend(job.steps or local_steps(usual, len(job.data)) for job in found)
        return found

    ClientBatch.jobs = counted  # type: ignore[method-assign,assignment]
    try:
        yield taken
    finally:
        ClientBatch.jobs = jobs  # type: ignore[method-assign]


def _spread(values: Sequence[float], digits: int) -> str:
    if not values:
        return "never"
    spread = f" ± {stdev(values):.{digits}f}" if len(values) > 1 else ""
    return f"{mean(values):.{digits}f}{spread}"


@contextmanager
def measured_speeds(path: str) -> Iterator[None]:
    """Let simulated devices be as fast as those of a file."""
    drawn = DeviceSpeeds.drawn
    with np.load(path) as file:
        compute, kbps = file["computation"] / 1000, file["communication_kbps"] * 1000 / 8

    def real(clients: int, seed: int = 0, *_: float) -> DeviceSpeeds:
        some = np.random.default_rng(seed).choice(len(compute), clients, replace=False)
        return DeviceSpeeds(compute[some], kbps[some])

    DeviceSpeeds.drawn = real  # type: ignore[method-assign,assignment]
    try:
        yield
    finally:
        DeviceSpeeds.drawn = drawn  # type: ignore[method-assign]


Measure = Callable[[str, Settings, Sequence[int]], list[str]]
_PLAIN = ["setting", "rounds", "epsilon", "bytes up", "bytes down", "accuracy"]
_WORKED = ["steps", "accuracy", "worst tenth"]
_LIARS_ARE = "of the clients with random labels, among as many of the lowest values"
TABLES: dict[str, tuple[list[str], Measure, dict[str, Settings]]] = {
    "budget": (_PLAIN, plain, BUDGETS),
    "uplink": (_PLAIN, plain, UPLINKS),
    "sites": (["how", "all honest", "a fifth with random labels"], among_sites, SITES),
    "best": (["run", "last model", "best model", "its rounds"], best_and_last, BESTS),
    "work": (["how", *_WORKED, *_WORKED], worked, WORKS),
    "value": (["leave-one-out", "ms a round", "accuracy", _LIARS_ARE], valued, VALUES),
}


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=[*TABLES, "time"])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--speeds", default="", help="an .npz file with the speeds of devices")
    options = parser.parse_args()
    seeds = range(options.seeds)
    if options.what == "time":
        heads = ["how", f"simulated s to {100 * TARGET:.0f} %", "updates used", "reached"]
        with measured_speeds(options.speeds) if options.speeds else nullcontext():
            rows = [timed(*way, seeds) for way in WAYS.items()]
    else:
        heads, measure, chosen = TABLES[options.what]
        rows = [measure(*each, seeds) for each in chosen.items()]
    print(Table([heads, *rows]).markdown())


if __name__ == "__main__":
    main()
