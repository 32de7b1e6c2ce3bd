"""CosAge by other forms of its similarity, beside how we read eq. 8 and 9."""

from ....tools.experiments.tables import Table
from ...sweeps.measures import final, last_mean, mean_height
from ..cosage import forms

INTRODUCTION = (
    "`cosage` divides updates by their norms before it compares them (`summary.form='unit'`), since"
    " eq. 8 and 9 as printed fall with an update's length. `printed` uses them literally, and"
    " `index-overlap` (ours, after IOS) the share of their largest entries that two updates have in"
    " common. Alike: of 10 choices, those that `unit` and `printed` share at equal ages. Points of"
    " accuracy relative to `unit`, 10 seeds, with 95 % intervals of paired differences, not"
    " corrected for their number."
)
_WHERE = ("1 shard, 8 steps", "3 shards, 8 steps", "1 shard, 2 steps", "3 shards, 2 steps")


def table_of_forms() -> str:
    """Return the table."""
    results = forms().results
    alike = last_mean("agreement of choices", evaluations=10**6)
    measures = {"mean of all rounds": mean_height("accuracy"), "at the end": final("accuracy")}
    lines = [["digits", "form", "alike", *measures]]
    for where in _WHERE:
        for form in ("printed", "index-overlap"):
            cell, usual = f"{where}: {form}", f"{where}: unit"
            both = results.values(usual, alike) | results.values(cell, alike)
            count = f"{sum(both.values()) / len(both):.1f}" if form == "printed" and both else ""
            found = [results.difference(cell, usual, each) for each in measures.values()]
            points = [
                f"{100 * d.mean:+.1f} [{100 * d.low:+.1f}, {100 * d.high:+.1f}]" for d in found
            ]
            lines.append([where, form, count, *points])
    return f"{INTRODUCTION}\n\n{Table(lines).markdown()}"
