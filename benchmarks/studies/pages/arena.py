"""The page of the arena: every rule against the baseline of its kind."""

from dataclasses import replace

from ....tools.experiments.arena import FIRST, KINDS, Kind, standings, table
from ..arena import FEWER, REAL, studies
from ..study import Study
from .page import unfolded

_HEAD = """\
# The arena

What is a rule worth? Every rule runs on the same data sets with the same seeds, and is compared
with the baseline of its kind at equal rounds, equal bytes and equal simulated time. Among the rules
for who trains, taking turns (`aoi`, `turns`) is hard to beat at equal rounds. In simulated time,
where waiting for slow devices counts, Oort is, because it avoids them. Among the rules for groups
of clients, `split-test` is as good as rules that are given the number of groups."""
_OWN = '''\
Add a row for a rule of your own:

```
forager arena my_rule.py --out=benchmarks/records/arena.jsonl    # the others are in the records
```

The file holds one class. Its base class determines what it is compared with: `ClientSelector`
(`selectors/client_selectors/base.py`), who trains; `ClientHook` (`client_app/hooks/base.py`), on
which samples; `StreamSelector` (`selectors/stream_selectors/base.py`), what a stream keeps;
`CohortRule` (`strategies/cohorts/base.py`), with whom.

```python
from forager.selectors.client_selectors.base import ClientSelector, lowest


class Oldest(ClientSelector):
    def select(self, candidates, count, rng):
        return lowest(-candidates.observed("age"), count, rng)
```

`needs = frozenset({"loss"})` asks clients for their loss first; the base class lists the others.

```python
from forager.client_app.hooks.base import PerClientHook
from forager.core.tasks import Split


class EveryOther(PerClientHook):
    chooses_data = True

    def before_one(self, row):
        start, data = row.round % 2, row.data
        row.train_on(Split(data.x[start::2], data.y[start::2]))
```

```python
from forager.strategies.cohorts.base import CohortRule


class InTurn(CohortRule):
    def __init__(self, config):
        """Take settings from the run config; there are none."""

    def start(self, arrays):
        return {str(group): arrays for group in range(4)}

    def place(self, scene):
        return [str(int(key) % 4) for key in scene.keys]
```

`--json` prints the numbers ([schema](../scripts.md#rules)).'''


def markdown() -> str:
    """Return the page."""
    (study,) = studies()
    first = KINDS[FIRST]
    whole = replace(first, data={**first.data, **{name: {} for name in REAL}})
    about = (
        f"{study.setting} Differences from random choice, in points of accuracy on the server's"
        f" test data (mean of the last fifth of the evaluations until then), with 95 % intervals of"
        f" paired differences over {len(study.seeds)} seeds; with so few seeds they are wide."
        " `cluster-oracle` knows the clients' classes, which no server does."
    )
    others = [
        f"### {name[0].upper()}{name[1:]}, to `{kind.baseline}`\n\n{_tables(study, kind)}"
        for name, kind in KINDS.items()
        if kind is not first
    ]
    parts = [
        _HEAD,
        "## Who trains",
        _tables(study, whole),
        about,
        "## Your own rule",
        _OWN,
        "## On which samples, what a stream keeps, with whom",
        FEWER,
        *others,
    ]
    return "\n\n".join(parts) + "\n"


def _tables(study: Study, kind: Kind) -> str:
    """Return what was measured: at equal rounds, and to unfold by the other costs."""
    runs, rules = study.results.runs, kind.rules()
    done = [d for d in kind.data if all(runs.get(f"{d}: {rule}") for rule in rules)]
    found = [
        row
        for row in standings(study.results, kind, rules[1:])
        if row["data"] in done and row["count"]
    ]
    missing = ", ".join(d for d in kind.data if d not in done)
    command = "`python -m forager.benchmarks.studies run arena`"
    left = [f"Not measured yet: {missing} ({command})."] if missing else []
    if not done:
        return left[0]
    parts = [
        "At equal rounds:",
        table(found, "rounds", done).markdown(),
        unfolded("At equal simulated seconds", table(found, "seconds", done).markdown()),
        unfolded("At equal bytes", table(found, "bytes", done).markdown()),
    ]
    return "\n\n".join([*parts, *left])
