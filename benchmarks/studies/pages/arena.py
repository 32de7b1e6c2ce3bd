"""The page of the arena: every rule of who trains against lots."""

from ....tools.experiments.arena import BASELINE, DATA, rules, standings, table
from ..arena import studies
from .page import unfolded

_HEAD = """\
# The arena

What is a rule of who trains worth? Every rule runs on the same data sets with the same seeds, and
is compared with lots: after as many rounds, when as many bytes were spent, and when as much
simulated time has passed. Rules that look best after as many rounds need not be best in time,
where waiting for slow devices counts."""
_OWN = """\
A rule of your own gets its row:

```
forager arena my_rule.py --out=benchmarks/records/arena.jsonl    # the others are in the records
```

The file holds one subclass of `ClientSelector` (`selectors/client_selectors/base.py`):

```python
from forager.selectors.client_selectors.base import ClientSelector, lowest


class Oldest(ClientSelector):
    def select(self, candidates, count, rng):
        return lowest(-candidates.observed("age"), count, rng)
```

`needs = frozenset({"loss"})` asks clients for their loss first; the class says what else there is.
`--json` prints numbers."""


def markdown() -> str:
    """Return the page."""
    (study,) = studies()
    runs = study.results.runs
    done = [d for d in DATA if all(runs.get(f"{d}: {rule}") for rule in rules())]
    names = [rule for rule in rules() if rule != BASELINE]
    found = [row for row in standings(study.results, names) if row["data"] in done and row["count"]]
    missing = [d for d in DATA if d not in done]
    tables = {cost: table(found, cost, done).markdown() for cost in ("rounds", "seconds", "bytes")}
    about = (
        f"{study.setting} Points of accuracy to lots on the server's test data (mean of the last"
        f" fifth of the evaluations until then), with 95 % intervals of paired differences over"
        f" {len(study.seeds)} seeds; with so few seeds they are wide. `cluster-oracle` knows the"
        " clients' classes, which no server does."
    )
    command = "`python -m forager.benchmarks.studies run arena`"
    left = f"Not measured yet: {', '.join(missing)} ({command})."
    parts = [
        _HEAD,
        "## At equal rounds",
        tables["rounds"],
        about + (f" {left}" if missing else ""),
        unfolded("At equal simulated seconds", tables["seconds"]),
        unfolded("At equal bytes", tables["bytes"]),
        "## Your own rule",
        _OWN,
    ]
    return "\n\n".join(parts) + "\n"
