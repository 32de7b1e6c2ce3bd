"""What cannot be combined: written out here, while the code derives it from the declarations."""

from typing import Any

import pytest
from forager.core.config import ConfigError, read_config
from forager.core.config.combinations import _NEEDS, participants, unwise
from forager.core.methods.base import Method
from forager.core.methods.catalogue import AXES, all_methods, axis_defaults, methods
from other_values import config_with

# What has clients send nothing that depends on their data but the model they trained.
ONLY_A_MODEL = {
    "client-selector": {"random", "all", "round-robin", "aoi", "turns", "hics", "divfl"},
    "data-selector": {
        *("full", "random", "facility-location", "crust", "skyline"),
        *("trusted", "gcfl", "gradmatch", "nearest"),
        *("reservoir", "fifo", "high-loss", "gradient-norm", "fedbalancer", "sld", "unlimited"),
        "titan",
    },
    "cohorts": {"none", "split-test", "conflict-test", "auxo", "cfl", "neighbours"},
    "similarity": {"none", "cosine", "euclidean"},
    "objective": {"sgd", "prox", "gce", "sce", "moon", "per-fedavg", "ditto"},
    "aggregator": {
        *("fedavg", "fedavgm", "fedadam", "fedyogi", "fedadagrad", "paced"),
        *("median", "trimmed-mean", "krum", "multi-krum", "bulyan"),
        *("clipped-mean", "fltrust"),
    },
    "uplink": {"dense", "int8", "top-k", "top-k-plain", "compact"},
    "weighting": {"examples", "uniform"},
    "serving": {"model", "best"},
    "work": {"same", "by-speed", "coreset-by-speed"},
}
MEANS = {"fedavg", "fedavgm", "fedadam", "fedyogi", "fedadagrad", "paced"}
# What sends clients nothing that depends on others' data but models.
ONLY_MODELS_BACK = {
    "cohorts": {"none", "ifca"},
    "objective": {"sgd", "prox", "gce", "sce", "moon", "per-fedavg", "ditto"},
}


def problems(**keys: Any) -> str:
    """The error of a config with these keys; ``__`` stands for a dot; "" if there is none."""
    flat = {key.replace("__", ".").replace("_", "-"): value for key, value in keys.items()}
    try:
        read_config(flat)
    except ConfigError as error:
        return str(error)
    return ""


def with_company(method: Method) -> dict[str, str]:
    """Return the axes of a method, and of what it cannot do without."""
    axes = {method.axis: method.name}
    if method.axis == "similarity" and method.name != "none":
        axes["cohorts"] = "neighbours"
    if "a similarity" in method.needs:
        axes["similarity"] = "cosine"
    if getattr(method, "per_attacker", 0):
        axes["client-selector"] = "all"
    usual = axis_defaults()
    return {
        axis: names[0] for axis, names in method.requires.items() if usual[axis] not in names
    } | axes


@pytest.mark.parametrize("method", all_methods(), ids=str)
def test_every_method_can_be_chosen(method: Method) -> None:
    config = read_config(with_company(method))
    assert config.axes()[method.axis] == method.name


@pytest.mark.parametrize("method", all_methods(), ids=str)
def test_every_need_is_looked_into(method: Method) -> None:
    assert set(method.needs) <= set(_NEEDS)
    assert set(method.needs_in(config_with(method.axis, method.name))) <= set(_NEEDS)
    for axis, allowed in method.requires.items():
        assert set(allowed) <= set(methods(axis))


@pytest.mark.parametrize("axis", ONLY_A_MODEL)
def test_local_noise_goes_with_what_sends_nothing_but_a_model(axis: str) -> None:
    for name, method in methods(axis).items():
        axes = {"privacy": "local-dp", **with_company(method)}
        text = problems(**{key.replace("-", "_"): value for key, value in axes.items()})
        refused = (
            f"privacy = 'local-dp': {axis} = {name!r} has clients send more than a noisy model"
        )
        assert (refused in text) == (name not in ONLY_A_MODEL[axis]), text
        if name in ONLY_A_MODEL[axis]:
            assert text == ""
        else:
            (line,) = [line for line in text.splitlines() if refused in line]
            allowed = line.partition("allowed are ")[2].split(", ")
            assert set(allowed) == ONLY_A_MODEL[axis]


def test_ode_goes_with_local_noise_once_its_gradient_has_some_and_there_is_no_plan() -> None:
    keys: dict[str, Any] = {"privacy": "local-dp", "data-selector": "ode"}
    with pytest.raises(ConfigError) as error:
        read_config(keys)
    for way_out in ("set ode.coordinate = false", "set ode.noise to more than 0"):
        assert way_out in str(error.value)
    read_config({**keys, "ode.coordinate": False, "ode.noise": 0.1})
    read_config({**keys, "ode.coordinate": False, "ode.estimator": "none"})


def test_every_axis_has_been_thought_of() -> None:
    assert {*ONLY_A_MODEL, "privacy"} == set(AXES)


def test_auxo_goes_with_local_noise() -> None:
    """It finds cohorts by what is noisy already, and asks nobody."""
    assert problems(privacy="local-dp", cohorts="split-test") == ""


def test_central_noise_needs_a_mean() -> None:
    for name in methods("aggregator"):
        text = problems(privacy="central-dp", aggregator=name, client_selector="all")
        if name in MEANS:
            assert text == ""
        else:
            assert (
                "privacy = 'central-dp': the influence of one client on other aggregators" in text
            )
            assert f"not {name!r}" in text
            assert all(mean in text for mean in MEANS)


def test_central_noise_covers_models_only() -> None:
    for axis in AXES:
        for name, method in methods(axis).items():
            if axis in ("privacy", "aggregator"):
                continue
            axes = {"privacy": "central-dp", **with_company(method)}
            text = problems(**{key.replace("-", "_"): value for key, value in axes.items()})
            refused = f"{axis} = {name!r} releases more than models with noise"
            allowed = ONLY_MODELS_BACK.get(axis)
            plain = name in allowed if allowed else name not in ("ode-balanced", "ode", "by-loss")
            assert (refused in text) == (not plain), text


def test_control_variates_need_one_model() -> None:
    for name, method in methods("cohorts").items():
        text = problems(objective="scaffold", **with_company(method))
        if name == "none":
            assert text == ""
        else:
            assert "objective = 'scaffold': a client keeps one state, not one per model" in text
            assert f"use cohorts = none, not {name!r}" in text


SUPPORTS = {"centred-overlap", "index-overlap", "signed-overlap"}
COMPARED = {
    "none": {"none"},
    "ifca": {"none"},
    "clove": {"none"},
    "cfl": {"none"},
    "flexcfl": {"none"},
    "fl-hc": {"none"},
    "split-test": {"none", *SUPPORTS},
    "conflict-test": {"none", *SUPPORTS},
    "auxo": {"none", *SUPPORTS},
    "similarity": {*SUPPORTS, "cosine", "euclidean", "oracle"},
    "neighbours": {*SUPPORTS, "cosine", "euclidean", "oracle"},
}


@pytest.mark.parametrize("cohorts", methods("cohorts"))
@pytest.mark.parametrize("similarity", methods("similarity"))
def test_a_similarity_is_for_cohorts_that_compare(cohorts: str, similarity: str) -> None:
    text = problems(cohorts=cohorts, similarity=similarity)
    if similarity in COMPARED[cohorts]:
        assert text == ""
    else:
        needs = "set a similarity; use"
        verb = needs if cohorts in ("similarity", "neighbours") else "needs"
        assert f"cohorts = {cohorts!r}: {verb} similarity = " in text
        assert all(name in text for name in COMPARED[cohorts])
        assert f"not {similarity!r}" in text


def test_changes_are_spread_out_where_nothing_else_is_compared_by_signatures() -> None:
    assert problems(client_selector="signed-diversity") == ""
    keys = {"client_selector": "signed-diversity", "cohorts": "similarity"}
    assert problems(**keys, similarity="signed-overlap") == ""
    text = problems(**keys, similarity="centred-overlap")
    needs = "needs similarity = none or signed-overlap, not 'centred-overlap'"
    assert f"client-selector = 'signed-diversity': {needs}" in text


SERVER_DATA: list[tuple[dict[str, Any], bool]] = [
    ({"data_selector": "trusted"}, True),
    ({"data_selector": "nearest"}, True),
    ({"data_selector": "gcfl"}, True),
    ({"data_selector": "gradmatch", "coreset__target": "server"}, True),
    ({"fine_tune__epochs": 2}, True),
    ({"data_selector": "gradmatch"}, False),
    ({"data_selector": "trusted", "coreset__target": "own"}, False),
    ({"data_selector": "gcfl", "coreset__target": "own"}, False),
    ({"data_selector": "crust"}, False),
    ({"data_selector": "crust", "coreset__target": "server"}, False),
    ({"data_selector": "facility-location"}, False),
    ({"data_selector": "random"}, False),
    ({}, False),
]


@pytest.mark.parametrize(("keys", "needs"), SERVER_DATA, ids=str)
def test_some_need_samples_on_the_server(keys: dict[str, Any], needs: bool) -> None:
    assert problems(**keys) == ""
    text = problems(**keys, data__validation_share=0.0)
    assert ("needs samples on the server; set data.validation-share above 0" in text) == needs
    assert bool(text) == needs


def test_a_count_of_samples_is_whole() -> None:
    text = problems(data_selector="trusted", coreset__budget=1.5)
    assert "coreset.budget = 1.5: above 1 it is a whole number of samples" in text
    for budget in (0.5, 1.0, 20.0):
        assert problems(data_selector="trusted", coreset__budget=budget) == ""


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        ({}, 5),
        ({"clients-per-round": 3}, 3),
        ({"clients-per-round": 30}, 10),
        ({"fraction-train": 0.01}, 1),
        ({"client-selector": "all", "clients-per-round": 3}, 10),
    ],
    ids=str,
)
def test_how_many_are_asked(keys: dict[str, Any], expected: int) -> None:
    assert participants(read_config(keys)) == expected


def test_all_that_cannot_be_combined_is_said_at_once() -> None:
    text = problems(
        privacy="local-dp",
        aggregator="krum",
        clients_per_round=3,
        round__min_replies=4,
        objective="scaffold",
        cohorts="split-test",
        fine_tune__epochs=1,
        data__validation_share=0.0,
    )
    for part in ("krum", "round.min-replies", "control variate", "one state", "fine-tune.epochs"):
        assert part in text
    assert len(text.splitlines()) == 5


@pytest.mark.parametrize("name", ["trusted", "gcfl", "nearest"])
def test_coresets_by_the_servers_samples_in_cohorts_say_the_way_out(name: str) -> None:
    keys = {"data-selector": name, "cohorts": "split-test"}
    (line,) = unwise(read_config(keys))
    assert line.startswith(f"data-selector = {name!r} with cohorts = 'split-test': ")
    assert line.endswith("use coreset.target = 'own'")
    assert unwise(read_config({**keys, "coreset.target": "own"})) == []
    assert unwise(read_config({"data-selector": name})) == []
