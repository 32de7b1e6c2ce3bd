"""Names of papers run the papers: what their presets set is what the papers state."""

from typing import Any

import pytest
from forager.core.config import ConfigError, Scalar, default_config, read_config
from forager.core.config.reading import fill_axes, old_names
from forager.core.methods.base import Method
from forager.core.methods.catalogue import all_methods, kind_of_preset, methods, presets
from forager.core.methods.cohort import CohortSettings
from forager.core.methods.coreset import CoresetMethod, CoresetSettings
from forager.core.methods.ode import ode_method

# What the texts state, as far as it is a setting of the method and not of the experiment
STATED: dict[str, dict[str, Scalar]] = {
    "cosage": {
        "client-selector": "cosage",
        "weighting": "uniform",  # eq. 10 divides by S
        "uplink": "top-k-plain",
        "top-k.density": 0.1,  # section IV: a tenth of the head's entries
        "summary.power": 4.0,  # eq. 8 and 9
        "summary.form": "unit",  # as eq. 9 is to be read
        "summary.ask-at-most": 0,  # phase 2 asks all
        "cosage.silent-ratio": 0.0,  # a variant of figure 4
        "clients.at-most": 0.0,  # no limit
    },
    "gcfl": {
        "data-selector": "gcfl",
        "weighting": "uniform",
        "coreset.budget": 0.1,  # b
        "coreset.every": 10,  # K
        "coreset.ridge": 0.5,  # lambda
        "coreset.per-class": True,  # section 5.2
        "coreset.residual": "mean",
        "coreset.use-weights": False,  # omitted below eq. 7
        "aggregation.learning-rate": 0.0,  # eta_g is 1
    },
    "ode": {
        "data-selector": "ode",
        "ode.estimator": "incremental",  # eq. 8
        "ode.coordinate": True,
        "ode.clients-per-label": 5,  # n_label of table 1
        "stream.capacity": 10,  # table 1
    },
    "auxo": {
        "cohorts": "auxo",
        "aggregator": "fedyogi",  # section 7.2
        "auxo.first-clustering": 5,
        "auxo.first-split": 20,
        "auxo.alpha": 1.0,
        "auxo.min-participants": 1,
        "auxo.records-lost": 0.0,
    },
    "ios": {
        "cohorts": "similarity",
        "similarity": "index-overlap",
        "ios.share": 0.0,  # Algorithm 1 chooses K
        "ios.samples": 0,  # all of a client's
        "ios.stability": 0.0,  # rho_0 is not given
    },
}
OURS = ("cosage-feedback", "trusted", "ode-balanced", "split-test", "ios-centred", "forager")


@pytest.mark.parametrize("paper", STATED)
def test_a_paper_s_preset_sets_what_the_paper_states(paper: str) -> None:
    flat = read_config({**default_config(), "strategy": paper}).flat()
    assert {key: flat[key] for key in STATED[paper]} == STATED[paper]


@pytest.mark.parametrize("paper", STATED)
def test_a_paper_s_preset_adds_nothing_of_ours(paper: str) -> None:
    axes = fill_axes(paper, {})
    used = [methods(axis)[axes[axis]] for axis in presets()[paper]]
    assert [str(method) for method in used if method.kind == "ours"] == []
    assert kind_of_preset(paper) == "paper"
    config = read_config({"strategy": paper})
    assert config[CohortSettings].shared(config.cohorts, config.similarity) == "none"


def test_what_auto_means_is_the_paper_s_under_its_name() -> None:
    configs = [read_config({"strategy": name}) for name in ("ode", "ode-balanced", "fedavg")]
    ode, balanced, other = map(ode_method, configs)
    assert ode is not None
    assert balanced is not None
    assert other is None
    assert (ode.quantities, ode.client_weights) == ("even", "stored")
    assert (balanced.quantities, balanced.client_weights) == ("proportional", "velocity")
    limits = [ode.plan(configs[0]).clients_per_label, balanced.plan(configs[1]).clients_per_label]
    assert limits == [5, 0]
    assert (ode.cover, ode.replan) == (False, float("inf"))  # both are ours
    assert (balanced.cover, balanced.replan) == (True, 0.2)
    gcfl = methods("data-selector")["gcfl"]
    assert isinstance(gcfl, CoresetMethod)
    assert gcfl.target_of(CoresetSettings()) == "server"
    assert (gcfl.first_round_of(CoresetSettings()), gcfl.equal_of(CoresetSettings())) == (0, True)
    release = CoresetSettings(first_round=3, class_budgets="proportional")
    assert (gcfl.first_round_of(release), gcfl.equal_of(release)) == (3, False)
    trusted = methods("data-selector")["trusted"]
    assert isinstance(trusted, CoresetMethod)
    assert (trusted.first_round_of(CoresetSettings()), trusted.equal_of(CoresetSettings())) == (
        1,
        False,
    )


@pytest.mark.parametrize("method", all_methods(), ids=str)
def test_a_method_is_a_paper_s_or_ours_or_a_baseline(method: Method) -> None:
    assert not (method.paper and method.after)
    assert method.kind == ("paper" if method.paper else "ours" if method.after else "baseline")
    assert method.cited().startswith("after ") == (method.kind == "ours")


def test_ours_are_named_beside_the_papers() -> None:
    assert [kind_of_preset(name) for name in OURS] == ["ours"] * 6
    others = set(presets()) - set(OURS) - set(STATED)
    assert "ours" not in {kind_of_preset(name) for name in others}


@pytest.mark.parametrize(
    ("old", "now"),
    [
        *((f"{name}-paper", name) for name in ("cosage", "gcfl", "ode", "auxo", "ios")),
        ("agreement", "trusted"),
    ],
)
def test_an_old_preset_is_taken_for_what_it_is_called_now(old: str, now: str) -> None:
    assert read_config({"strategy": old}) == read_config({"strategy": now})
    (line,) = old_names({"strategy": old})
    assert f"strategy = {old!r}: it is {now!r} now" in line
    assert old not in presets()
    assert old_names({"strategy": now}) == []


@pytest.mark.parametrize(
    ("axis", "old", "now"),
    [
        ("data-selector", "gcfl-paper", "gcfl"),
        ("data-selector", "agreement", "trusted"),
        ("data-selector", "ode-paper", "ode"),
        ("cohorts", "auxo-paper", "auxo"),
        ("similarity", "index-overlap-paper", "index-overlap"),
        ("uplink", "top-k-paper", "top-k-plain"),
    ],
)
def test_so_is_an_old_method(axis: str, old: str, now: str) -> None:
    more: dict[str, Any] = {"cohorts": "similarity"} if axis == "similarity" else {}
    assert read_config({**more, axis: old}).axes()[axis] == now
    assert [line.partition(":")[0] for line in old_names({axis: old})] == [f"{axis} = {old!r}"]
    assert old not in methods(axis)


@pytest.mark.parametrize(
    ("key", "value", "now"),
    [
        ("ios.ema", 0.5, "it is always 0.8 now"),
        ("ode.client-weights", "stored", "data-selector = 'ode' weighs by what is stored"),
        ("data.workers", 2, "set workers in the class of your task"),
    ],
)
def test_an_old_key_is_refused_with_the_new_one(key: str, value: Scalar, now: str) -> None:
    with pytest.raises(ConfigError, match=now):
        read_config({key: value})


@pytest.mark.parametrize(("key", "value"), [("ios.ema", 0.8), ("auxo.last-split", 0)])
def test_an_old_key_is_accepted_where_it_says_what_is_always_so(key: str, value: Scalar) -> None:
    assert read_config({"strategy": "ios", key: value}) == read_config({"strategy": "ios"})
