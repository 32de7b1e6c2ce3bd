"""The page of real federations."""

from collections.abc import Iterable

from ....tools.experiments.tables import Table
from ...sweeps.measures import final, seconds_to, total_bytes
from ...sweeps.tables import Column
from ..real import FLAMBY, ROWS, TARGET, air, heart, shakespeare, spoken
from ..study import Study
from .no_harm import OWN, WORST
from .page import folded, unfolded

# FLamby's published results on Fed-Heart-Disease, mean and deviation of 5 seeds: as a mean over
# hospitals, and of all test patients scaled together (flamby_results_seed4?.csv)
PUBLISHED = {
    "FedAvg": ((0.685, 0.028), (0.748, 0.027)),
    "FedYogi": ((0.731, 0.013), (0.779, 0.015)),
}

_HEAD = """\
# Real federations

Clients that are not parts of one data set: hospitals, stations, speakers and devices, with
published splits. On the four hospitals of Fed-Heart-Disease our FedAvg and FedYogi agree with
FLamby's published results within their spread. `strategy='forager'` has the highest mean, level
with FLamby's result for training on all patients in one place (0.735); five seeds do not show that
it is above FedYogi. On Beijing's air no strategy differs from FedAvg by more than chance. Forager
includes none of these data sets: each is cited, and read from the folder `FORAGER_DATA`."""
_SOURCES = """\
- Fed-Heart-Disease: Janosi, Steinbrunn, Pfisterer and Detrano, 1988 (UCI, CC BY 4.0); split,
  features and published results: Ogier du Terrail et al., 2022: FLamby.
- Beijing multi-site air quality: Chen, 2019 (UCI, CC BY 4.0).
- Words by speaker: Warden, 2018: Speech Commands (counts only, CC BY 4.0).
- Speeds and connections of devices: Lai et al., 2022: FedScale.
- Shakespeare's speakers: public domain."""


def markdown() -> str:
    """Return the page."""
    patients, stations, devices, speakers = heart(), air(), spoken(), shakespeare()
    parts = [
        _HEAD,
        "## Hospitals: Fed-Heart-Disease",
        _reproduced(patients),
        patients.setting,
        _against(patients, "ours: ", ROWS, OWN),
        folded(patients, _columns("accuracy", OWN, WORST)),
        "## Stations: Beijing's air",
        stations.setting,
        _against(stations, "", ROWS, "clients-rmse-mean", scale=-100.0),
        folded(stations, _columns("rmse", "clients-rmse-mean", "clients-r2-mean")),
        "## Devices: time to accuracy",
        f"{devices.setting} Seconds are simulated.",
        folded(devices, [*_columns("accuracy", "simulated"), _time(), _MB]),
        "## Speakers: Shakespeare",
        speakers.setting,
        folded(speakers, _columns("accuracy", OWN, "clients-perplexity-mean")),
        "## Where the data are from",
        _SOURCES,
        unfolded("Run it again", _AGAIN),
    ]
    return "\n\n".join(parts) + "\n"


_MB = Column("MB", total_bytes(), ".1f", scale=1e-6)
_AGAIN = """\
Every number here comes from `benchmarks/records/real-*.jsonl`, but for FLamby's.

```
make results
FORAGER_DATA=... python -m forager.benchmarks.studies run real    # what is not measured yet
```"""


def _columns(*names: str) -> list[Column]:
    return [Column(name, final(name), ".1f" if name == "simulated" else ".3f") for name in names]


def _time() -> Column:
    return Column(f"s to {100 * TARGET:.0f} %", seconds_to("accuracy", TARGET), ".0f")


def _reproduced(study: Study) -> str:
    lines = [["", "hospitals: FLamby", "hospitals: here", "pooled: FLamby", "pooled: here"]]
    for name in FLAMBY:
        theirs = [f"{mean:.3f} ± {spread:.3f}" for mean, spread in PUBLISHED[name]]
        ours = [
            _shown(study, f"as FLamby: {name}", OWN),
            _shown(study, f"as FLamby, pooled test: {name}", "accuracy"),
        ]
        lines.append([name, theirs[0], ours[0], theirs[1], ours[1]])
    return Table(lines).markdown()


def _shown(study: Study, cell: str, metric: str) -> str:
    if not study.results.runs.get(cell):
        return "-"
    found = study.results.estimate(cell, final(metric))
    return f"{found.mean:.3f} ± {found.std:.3f}"


def _against(
    study: Study, before: str, rows: Iterable[str], metric: str, scale: float = 100.0
) -> str:
    runs = study.results.runs
    lines = [
        ["", "mean", "points to fedavg" if scale > 0 else "less error than fedavg, hundredths"]
    ]
    for row in rows:
        cell, baseline = f"{before}{row}", f"{before}fedavg"
        if not (runs.get(cell) and runs.get(baseline)):
            continue
        found = study.results.difference(cell, baseline, final(metric))
        mean, low, high = found.mean * scale, *sorted((found.low * scale, found.high * scale))
        gap = "" if row == "fedavg" else f"{mean:+.1f} [{low:+.1f}, {high:+.1f}]"
        lines.append([row, _shown(study, cell, metric), gap])
    return Table(lines).markdown() if len(lines) > 1 else "Not measured yet."
