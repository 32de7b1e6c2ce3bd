"""The catalogue: every declaration is complete, and what it names is there."""

from collections import Counter
from inspect import isclass

import pytest
from forager.client_app.hooks.base import ClientHook
from forager.core.config.run_config import AXIS_DEFAULTS
from forager.core.methods.base import Method, Settings, load
from forager.core.methods.catalogue import (
    AXES,
    all_methods,
    all_settings,
    axis_defaults,
    chosen,
    methods,
    presets,
)
from forager.core.methods.cohort import CohortMethod
from forager.core.methods.coreset import CoresetMethod, CoresetSettings
from forager.core.methods.selector import Selector
from forager.core.methods.stream import StreamMethod
from forager.selectors.client_selectors.base import ClientSelector
from forager.selectors.data_selectors.coreset import RULES
from forager.selectors.stream_selectors.base import StreamSelector

EVERY = pytest.mark.parametrize("method", all_methods(), ids=str)


def test_no_two_methods_have_the_same_name() -> None:
    named = Counter((method.axis, method.name) for method in all_methods())
    assert set(named.values()) == {1}


def test_an_axis_has_one_default_and_it_comes_first() -> None:
    for axis in AXES:
        assert [m.default for m in methods(axis).values()].count(True) == 1
        assert next(iter(methods(axis))) == axis_defaults()[axis]


def test_no_two_sections_have_the_same_prefix() -> None:
    prefixes = [kind.section for kind in all_settings()]
    assert len(set(prefixes)) == len(prefixes)
    assert "" not in prefixes


@EVERY
def test_what_a_method_names_is_there(method: Method) -> None:
    rule = method.rule if isinstance(method, CohortMethod) else ""
    for place in filter(None, (method.core, method.layer, method.outer, method.hook, rule)):
        assert callable(load(place))
    assert method.about
    assert not method.about.endswith(".")


@EVERY
def test_a_hook_is_one(method: Method) -> None:
    if method.hook:
        hook = load(method.hook)
        assert isclass(hook)
        assert issubclass(hook, ClientHook)


@pytest.mark.parametrize("method", methods("client-selector").values(), ids=str)
def test_the_core_of_a_selector_takes_the_settings_of_its_own_section(method: Method) -> None:
    assert isinstance(method, Selector)
    own = [kind for kind in method.settings if kind.section == method.name]
    selector = load(method.core)(**(own[0]().model_dump() if own else {}))
    assert isinstance(selector, ClientSelector)


def test_the_core_of_a_stream_rule_is_one() -> None:
    rules = [m for m in methods("data-selector").values() if isinstance(m, StreamMethod)]
    assert {m.name for m in rules} == {
        *(
            "reservoir",
            "fifo",
            "high-loss",
            "gradient-norm",
            "fedbalancer",
            "sld",
            "titan",
            "unlimited",
        ),
        *("ode-balanced", "ode"),
    }
    assert all(issubclass(load(m.core), StreamSelector) for m in rules)


def test_presets_are_the_published_methods() -> None:
    assert presets() == {
        "fedavg": {"aggregator": "fedavg"},
        "fedprox": {"objective": "prox"},
        "fedyogi": {"aggregator": "fedyogi"},
        "scaffold": {"objective": "scaffold"},
        "moon": {"objective": "moon"},
        "ditto": {"objective": "ditto"},
        "cosage": {"client-selector": "cosage", "uplink": "top-k-plain", "weighting": "uniform"},
        "cosage-feedback": {"client-selector": "cosage", "uplink": "top-k", "weighting": "uniform"},
        "gcfl": {"data-selector": "gcfl", "weighting": "uniform"},
        "trusted": {"data-selector": "trusted", "weighting": "uniform"},
        "ode-balanced": {"data-selector": "ode-balanced"},
        "ode": {"data-selector": "ode"},
        "split-test": {"cohorts": "split-test"},
        "auxo": {"cohorts": "auxo", "aggregator": "fedyogi"},
        "ios-centred": {"cohorts": "similarity", "similarity": "centred-overlap"},
        "ios": {"cohorts": "similarity", "similarity": "index-overlap"},
        "per-fedavg": {"objective": "per-fedavg"},
        "forager": {
            "client-selector": "turns",
            "data-selector": "confirmed",
            "cohorts": "conflict-test",
            "aggregator": "paced",
            "uplink": "compact",
            "downlink": "changes",
            "serving": "best",
        },
    }
    assert next(iter(presets())) == "fedavg"


def test_defaults_are_the_plain_choices() -> None:
    assert axis_defaults() == {
        "client-selector": "random",
        "data-selector": "full",
        "cohorts": "none",
        "similarity": "none",
        "aggregator": "fedavg",
        "objective": "sgd",
        "uplink": "dense",
        "privacy": "none",
        "weighting": "examples",
        "serving": "model",
        "work": "same",
    }


def test_chosen_are_in_the_order_in_which_clients_act() -> None:
    axes = {**AXIS_DEFAULTS, "uplink": "top-k", "privacy": "local-dp", "objective": "moon"}
    found = chosen(axes)
    assert [method.axis for method in found] == list(AXES)
    acting = [method.name for method in found if method.hook]
    assert acting == ["local-dp", "moon", "top-k"]


def test_a_name_that_is_not_there_is_an_error() -> None:
    with pytest.raises(KeyError):
        chosen({"uplink": "carrier-pigeon"})


def test_coresets_say_what_rule_they_follow_and_whose_gradients_they_match() -> None:
    found = {
        name: (m.rule, m.target, m.looks_at)
        for name, m in methods("data-selector").items()
        if isinstance(m, CoresetMethod)
    }
    assert found == {
        "gcfl": ("distance", "server", "gradients"),
        "gradmatch": ("projection", "own", "gradients"),
        "nearest": ("nearest", "server", "gradients"),
        "trusted": ("trusted", "server", "gradients"),
        "crust": ("crust", "none", "gradients"),
        "facility-location": ("facility-location", "none", "inputs"),
        "random": ("random", "none", "nothing"),
    }
    assert {rule for rule, *_ in found.values()} <= {*RULES, "trusted"}


@pytest.mark.parametrize("target", ["server", "own"])
def test_settings_take_the_place_of_a_matching_method_s_own_target(target: str) -> None:
    settings = CoresetSettings(target=target)  # type: ignore[arg-type]
    for name, method in methods("data-selector").items():
        if not isinstance(method, CoresetMethod):
            continue
        matches = name in ("trusted", "gcfl", "gradmatch", "nearest")
        assert method.target_of(CoresetSettings()) == method.target
        assert method.target_of(settings) == (target if matches else method.target)


def test_settings_are_read_by_their_class() -> None:
    class Made(Settings):
        section = "made"
        up_hill: int = 3

    assert Made.own_keys() == ["made.up-hill"]
    assert Made().problems() == []
    assert Made.model_validate({"up-hill": 4}).up_hill == 4
