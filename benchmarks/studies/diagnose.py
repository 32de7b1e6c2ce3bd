"""What a diagnosis finds where something was planted, or nothing.

Its thresholds were chosen on seeds 100 to 104 of digits and of blobs.
"""

from ...tools.experiments.records import Cell
from ..diagnosed import LONG, ROUNDS
from ..planted_cases import CASES, Settings
from .study import Study

DATA: dict[str, Settings] = {
    "digits": {"task": "digits", "num-clients": 20},
    "blobs": {"task": "blobs", "num-clients": 20},
}


def studies() -> list[Study]:
    """Return the one study."""
    common: Settings = {"study.runner": "diagnosed", "num-server-rounds": ROUNDS}
    cells = [
        Cell(f"{name}: {planted}: {way}", {**common, **data, **settings})
        for name, data in DATA.items()
        for planted, ways in CASES.items()
        for way, settings in ways.items()
        if name != "blobs" or way != "turned images"  # which are no images
    ]
    for name, data in DATA.items():
        settings = {**common, **data, "num-server-rounds": LONG, "partition": "iid"}
        cells.append(Cell(f"{name}: long", settings))
    setting = f"{ROUNDS} rounds as forager diagnose sets them up, all clients in each."
    return [Study("diagnose", "diagnose", setting, tuple(cells), range(10))]
