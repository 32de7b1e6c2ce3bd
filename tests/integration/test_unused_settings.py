"""What a run says it does not use has no effect on it, and what is not used is said."""

import hashlib
import json
from typing import Any

import pytest
from forager.core.config import default_config, read_config
from forager.core.config.combinations import unused_keys
from forager.core.methods.base import Method
from forager.core.methods.catalogue import all_methods, chosen, methods
from forager.core.methods.coreset import CoresetMethod
from forager.tools.engine.local import run_local

# Another value than the default for every key that some method of its section does not read.
OTHER: dict[str, Any] = {
    **{"aggregation.learning-rate": 0.05, "aggregation.momentum": 0.5},
    **{"aggregation.tau": 0.1, "aggregation.q": 0.5},
    **{"aggregation.trim": 0.3, "aggregation.malicious": 0, "aggregation.keep": 2},
    **{"cohort.number": 2, "cohort.joint-rounds": 1, "cohort.share": "none"},
    **{"coreset.every": 1, "coreset.first-round": 0},
    **{"coreset.target": "own", "coreset.per-class": False, "coreset.ridge": 50.0},
    **{"coreset.use-weights": True, "coreset.residual": "total"},
    **{"coreset.class-budgets": "equal", "coreset.clip": 0.5},
    **{"coreset.noise-multiplier": 2.0},
    **{"ios.at": "trained", "ios.stability": 0.5, "ios.resamples": 2},
    **{"ios.share": 0.5, "ios.coverage": 0.3, "ios.most": 0.05},
    **{"ios.samples": 2, "ios.first-round": 1, "ios.every": 1},
    **{"ios.neighbours": 1, "ios.signatures": True},
    **{"ode.clients-per-label": 1, "stream.capacity": 2},
    **{"summary.power": 2.0, "summary.form": "printed"},
}


def not_read(method: Method) -> dict[str, Any]:
    """Return another value for each key of a method's sections that it does not read."""
    own = [key for section in method.settings for key in section.own_keys()]
    return {key: OTHER[key] for key in own if key not in method.keys_read()}


def company(method: Method) -> dict[str, Any]:
    """Return the axes of a method and of what it cannot do without, others plain."""
    axes: dict[str, Any] = {method.axis: method.name}
    if method.axis == "similarity":
        axes["cohorts"] = "neighbours"
    if "a similarity" in method.needs:
        axes["similarity"] = "cosine"
    if method.name == "bulyan":
        axes["client-selector"] = "all"
    if isinstance(method, CoresetMethod):
        axes["coreset.budget"] = 0.2
    return axes


SOME_NOT_READ = [method for method in all_methods() if not_read(method)]
CASES = {str(method): company(method) for method in SOME_NOT_READ}
CASES["auxo by overlap"] = {"cohorts": "auxo", "similarity": "centred-overlap"}
CASES["split-test by overlap"] = {"cohorts": "split-test", "similarity": "centred-overlap"}
CASES["split-test by signs"] = {"cohorts": "split-test", "similarity": "signed-overlap"}


@pytest.fixture
def small(tmp_path):
    return {
        "output-dir": str(tmp_path / "runs"),
        "report": False,
        "num-server-rounds": 3,
        "num-clients": 7,
        "clients-per-round": 5,
        "checkpoint.every": 0,
        "round.give-up-after": 1.0,
    }


def what_came_of(result):
    """The model, and whom and what each round was about."""
    kept = ("selected", "coresets", "regrouped", "cohorts", "neighbours", "streams")
    lines = (result.folder / "events.jsonl").read_text().splitlines()
    events = [e for e in map(json.loads, lines) if e["event"] in kept]
    for event in events:
        for key in [key for key in event if "time" in key or "seconds" in key]:
            del event[key]
    model = (result.folder / "model.safetensors").read_bytes()
    return hashlib.sha256(model).hexdigest(), events


@pytest.mark.parametrize("keys", CASES.values(), ids=CASES)
def test_what_is_said_not_to_be_used_is_not(small, said, keys):
    given = {**small, **keys}
    config = read_config({**default_config(), **given})
    set_too = {key: OTHER[key] for key in OTHER if key not in keys}
    unused = set(unused_keys(config, set_too))
    sections = {key for m in chosen(config.axes()) for s in m.settings for key in s.own_keys()}
    noise = {key: OTHER[key] for key in OTHER if key in unused & sections}
    plain = run_local(given)
    assert not [line for line in said if "not used by this run" in line]
    noisy = run_local({**given, **noise})
    if noise:
        (line,) = [line for line in said if "not used by this run" in line]
        assert set(line.partition("run: ")[2].split(", ")) == set(noise)
    assert what_came_of(noisy) == what_came_of(plain)


def test_that_would_show(small):
    """The same comparison sees what is used."""
    for keys in ({"data-selector": "gcfl"}, {"data-selector": "trusted"}):
        plain, other = (
            run_local({**small, **keys, "coreset.every": every, "coreset.first-round": 0})
            for every in (1, 9)
        )
        assert what_came_of(plain) != what_came_of(other)


def test_every_kind_of_method_is_here() -> None:
    assert {m.axis for m in SOME_NOT_READ} == {
        *("data-selector", "cohorts", "similarity", "client-selector", "aggregator")
    }
    for name in ("crust", "trusted", "random", "unlimited"):
        assert methods("data-selector")[name] in SOME_NOT_READ
