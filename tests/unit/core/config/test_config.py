import math
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
from flwr.common.config import flatten_dict
from forager.core.config import ConfigError, RunConfig, default_config, read_config
from forager.core.config.reading import fill_axes, nearest
from forager.core.config.run_config import AXIS_DEFAULTS
from forager.core.methods.catalogue import AXES, axis_defaults, methods, presets
from hypothesis import given, settings
from hypothesis import strategies as st

PYPROJECT = Path(__file__).resolve().parents[4] / "pyproject.toml"
DEFAULTS = default_config()
PRESETS = presets()


def problem(**keys: Any) -> str:
    """The error of a config with these keys; ``__`` stands for a dot."""
    flat = {key.replace("__", ".").replace("_", "-"): value for key, value in keys.items()}
    with pytest.raises(ConfigError) as caught:
        read_config(flat)
    return str(caught.value)


def test_pyproject_has_every_key_with_its_default_and_type() -> None:
    table = tomllib.loads(PYPROJECT.read_text())["tool"]["flwr"]["app"]["config"]
    written = dict(flatten_dict(table))
    assert written == DEFAULTS
    assert list(written) == list(DEFAULTS)
    assert {key: type(value) for key, value in written.items()} == {
        key: type(value) for key, value in DEFAULTS.items()
    }


def test_the_defaults_are_a_sound_config() -> None:
    config = read_config(DEFAULTS)
    assert config == read_config({})
    for axis, default in AXIS_DEFAULTS.items():
        assert config.flat()[axis] == default


def test_every_axis_of_the_catalogue_is_a_key_with_a_default_that_runs() -> None:
    assert set(AXES) < set(AXIS_DEFAULTS) < set(DEFAULTS)
    assert set(axis_defaults()) == set(AXES)
    for axis in AXES:
        assert AXIS_DEFAULTS[axis] == axis_defaults()[axis]
        assert AXIS_DEFAULTS[axis] in methods(axis)


def test_flat_and_read_are_inverse() -> None:
    config = read_config({"strategy": "fedprox", "top-k.density": 0.25, "seed": 3})
    flat = config.flat()
    assert read_config(flat) == config
    assert flat.keys() == DEFAULTS.keys()
    assert flat["top-k.density"] == 0.25


@pytest.mark.parametrize("key", DEFAULTS)
def test_every_key_can_be_set_to_its_default(key: str) -> None:
    assert read_config({key: DEFAULTS[key]}) == read_config({})


WRONG: dict[type, list[Any]] = {
    int: ["three", 1.5, True, ""],
    float: ["fast", True, ""],
    bool: ["yes", 1, 0.0],
    str: [3, 0.5, True],
}


@pytest.mark.parametrize("key", DEFAULTS)
def test_every_key_refuses_other_types_naming_key_and_value(key: str) -> None:
    for value in WRONG[type(DEFAULTS[key])]:
        with pytest.raises(ConfigError) as caught:
            read_config({key: value})
        assert f"{key} = {value!r}" in str(caught.value)


@pytest.mark.parametrize("key", [k for k, v in DEFAULTS.items() if isinstance(v, float)])
def test_a_whole_number_will_do_where_a_fraction_may_stand(key: str) -> None:
    """``flwr run -c "fraction-train=1"`` gives an int."""
    zero = ("momentum", "aggregation", "data.", "dp.b")
    value = 0 if key.startswith(zero) else 1
    if key in ("aggregation.tau",):
        value = 1
    if key != "dp.delta":  # no whole number is a share between 0 and 1
        assert isinstance(read_config({key: value}).flat()[key], float)


@pytest.mark.parametrize("key", [k for k, v in DEFAULTS.items() if isinstance(v, float)])
@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_no_number_may_be_infinite_or_none(key: str, value: float) -> None:
    """TOML has nan and inf: a learning rate of nan would train for hours for nothing."""
    with pytest.raises(ConfigError, match=key):
        read_config({key: value})


def test_a_type_is_checked_although_an_equal_value_was_read_before() -> None:
    read_config({"num-server-rounds": 1, "devices.slow": True})
    assert "num-server-rounds = True" in problem(num_server_rounds=True, devices__slow=True)
    assert "devices.slow = 1" in problem(num_server_rounds=1, devices__slow=1)
    assert "num-server-rounds = 1.0" in problem(num_server_rounds=1.0, devices__slow=True)


OUT_OF_RANGE: list[tuple[str, Any]] = [
    ("fraction-train", 1.01),
    ("fraction-train", -0.1),
    ("fraction-evaluate", 2),
    ("num-server-rounds", -1),
    ("num-clients", 0),
    ("clients-per-round", -3),
    ("evaluate-every", 0),
    ("local-epochs", 0),
    ("local-steps", -1),
    ("batch-size", 0),
    ("learning-rate", 0.0),
    ("learning-rate", -0.1),
    ("momentum", 1.0),
    ("weight-decay", -0.1),
    ("seed", -1),
    ("schedule.every", 0),
    ("schedule.factor", 0.0),
    ("round.deadline", 0.0),
    ("round.min-replies", 0),
    ("round.over-commit", -0.5),
    ("early-stop.patience", -1),
    ("checkpoint.keep", 0),
    ("data.validation-share", 1.0),
    ("data.client-test-share", -0.1),
    ("split.alpha", 0.0),
    ("corruption.rate", 1.1),
    ("net.hidden", 0),
    ("prox.mu", -1.0),
    ("top-k.density", 0.0),
    ("top-k.density", 1.1),
    ("aggregation.trim", 0.5),
    ("aggregation.malicious", -1),
    ("aggregation.keep", 0),
    ("quarantine.norm-factor", 0.0),
    ("local.threads", -1),
]


@pytest.mark.parametrize(("key", "value"), OUT_OF_RANGE)
def test_out_of_range_names_key_value_and_bound(key: str, value: Any) -> None:
    with pytest.raises(ConfigError) as caught:
        read_config({key: value})
    text = str(caught.value)
    assert f"{key} = {value!r}" in text
    assert re.search("at least|at most|above|below", text), "states what is allowed"


@pytest.mark.parametrize(
    ("key", "value", "allowed"),
    [
        ("schedule.kind", "linear", ["constant", "step", "cosine"]),
        ("local.trainer", "gpu", ["auto", "stack", "threads", "serial"]),
    ],
)
def test_a_choice_names_what_is_allowed(key: str, value: str, allowed: list[str]) -> None:
    text = problem(**{key.replace(".", "__").replace("-", "_"): value})
    assert f"{key} = {value!r}" in text
    assert all(repr(name) in text for name in allowed)


@pytest.mark.parametrize(
    ("key", "near"),
    [
        ("num-server-round", "num-server-rounds"),
        ("learning_rate", "learning-rate"),
        ("lerning-rate", "learning-rate"),
        ("topk.density", "top-k.density"),
        ("stategy", "strategy"),
        ("lr", "learning-rate"),
        ("data.owner", "data.user-column"),
        ("early-stop.patients", "early-stop.patience"),
    ],
)
def test_a_misspelt_key_names_the_nearest(key: str, near: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read_config({key: 1})
    assert f"{key} = 1: unknown key; did you mean {near!r}?" in str(caught.value)


@pytest.mark.parametrize("key", ["xyzzy", "round", "a.b.c", "", ".", "top-k.", ".density"])
def test_any_unknown_key_is_refused(key: str) -> None:
    with pytest.raises(ConfigError, match=r"unknown key(; forager keys lists all keys|; did)"):
        read_config({key: 1})


def test_an_unknown_strategy_names_all_and_the_nearest() -> None:
    text = problem(strategy="fedpro")
    assert "strategy = 'fedpro'" in text
    assert "did you mean 'fedprox'?" in text
    assert all(name in text for name in PRESETS)


@pytest.mark.parametrize("axis", AXES)
def test_an_unknown_name_of_an_axis_names_what_is_allowed(axis: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read_config({axis: "xyzzy"})
    text = str(caught.value)
    assert f"{axis} = 'xyzzy': unknown" in text
    assert all(name in text for name in methods(axis))


def test_a_misspelt_name_of_an_axis_names_the_nearest() -> None:
    assert "did you mean 'median'?" in problem(aggregator="medain")


@pytest.mark.parametrize("preset", PRESETS)
def test_a_preset_sets_its_axes(preset: str) -> None:
    config = read_config({"strategy": preset}).flat()
    assert {axis: config[axis] for axis in PRESETS[preset]} == PRESETS[preset]


def test_presets_name_only_axes_and_names_that_exist() -> None:
    for axes in PRESETS.values():
        for axis, name in axes.items():
            assert name in methods(axis) or (axis, name) == ("downlink", "changes")


@pytest.mark.parametrize("preset", PRESETS)
def test_a_preset_fills_only_what_is_empty(preset: str) -> None:
    for axis, name in PRESETS[preset].items():
        filled = fill_axes(preset, {axis: "mine"})
        assert filled[axis] == "mine"
        assert fill_axes(preset, {axis: ""})[axis] == name
        for other, value in PRESETS[preset].items():
            if other != axis:
                assert filled[other] == value


def test_forager_keeps_samples_by_ode_if_the_run_describes_a_stream() -> None:
    def selector(**keys: Any) -> str:
        flat = {**DEFAULTS, "strategy": "forager", **keys}
        return read_config({k.replace("__", "."): v for k, v in flat.items()}).data_selector

    assert selector() == "confirmed"
    assert selector(stream__capacity=7) == selector(stream__drift=0.5) == "ode-balanced"
    assert selector(stream__capacity=7, **{"data-selector": "reservoir"}) == "reservoir"
    assert selector(strategy="fedavg", stream__capacity=7) == "full"


def test_an_axis_that_is_set_takes_the_place_of_a_planned_one() -> None:
    config = read_config({"strategy": "scaffold", "objective": "sgd"})
    assert (config.strategy, config.objective) == ("scaffold", "sgd")


def test_an_empty_strategy_is_the_default() -> None:
    assert read_config({"strategy": ""}) == read_config({})


def test_several_problems_are_reported_at_once() -> None:
    text = problem(
        learning_rate="fast",
        fraction_train=2.0,
        top_k__density=0.0,
        aggregator="medain",
        objective="mooon",
        schedule__kind="linear",
    )
    for part in (
        "learning-rate = 'fast'",
        "fraction-train = 2.0",
        "top-k.density = 0.0",
        "aggregator = 'medain'",
        "objective = 'mooon'",
        "schedule.kind = 'linear'",
    ):
        assert part in text
    assert len(text.splitlines()) == 6


def test_a_misspelt_key_does_not_hide_other_problems() -> None:
    text = problem(lerning_rate=0.1, fraction_train=2.0, strategy="fedpro", uplink=3)
    for part in ("lerning-rate", "fraction-train = 2.0", "strategy = 'fedpro'", "uplink = 3"):
        assert part in text


IMPOSSIBLE: dict[str, tuple[dict[str, Any], str]] = {
    "nobody trains": ({"fraction-train": 0.0}, "fraction-train = 0.0"),
    "krum with too few": (
        {"aggregator": "krum", "clients-per-round": 4},
        "aggregator = 'krum': needs 5 clients per round with these settings, 4 are asked",
    ),
    "multi-krum with too few": (
        {"aggregator": "multi-krum", "clients-per-round": 4},
        "aggregator = 'multi-krum': needs 5 clients per round with these settings, 4 are asked",
    ),
    "bulyan with too few": (
        {"aggregator": "bulyan", "clients-per-round": 6},
        "aggregator = 'bulyan': needs 7 clients per round with these settings, 6 are asked",
    ),
    "krum with many malicious": (
        {"aggregator": "krum", "clients-per-round": 8, "aggregation.malicious": 3},
        "aggregator = 'krum': needs 9 clients per round with these settings, 8 are asked",
    ),
    "krum with too few clients at all": (
        {"aggregator": "krum", "num-clients": 4, "clients-per-round": 9},
        "aggregator = 'krum': needs 5 clients per round with these settings, 4 are asked",
    ),
    "more replies than asked by count": (
        {"clients-per-round": 3, "round.min-replies": 4},
        "round.min-replies = 4",
    ),
    "more replies than asked by fraction": (
        {"num-clients": 10, "fraction-train": 0.5, "round.min-replies": 8},
        "round.min-replies = 8",
    ),
    "more replies than clients": (
        {"num-clients": 4, "clients-per-round": 9, "round.min-replies": 6},
        "round.min-replies = 6",
    ),
}


@pytest.mark.parametrize(("keys", "named"), IMPOSSIBLE.values(), ids=IMPOSSIBLE.keys())
def test_impossible_combinations_are_refused(keys: dict[str, Any], named: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read_config(keys)
    assert named in str(caught.value)


POSSIBLE: dict[str, dict[str, Any]] = {
    "krum with enough": {"aggregator": "krum", "clients-per-round": 5},
    "multi-krum with enough": {"aggregator": "multi-krum", "clients-per-round": 5},
    "bulyan with enough": {"aggregator": "bulyan", "clients-per-round": 7},
    "krum with all": {"aggregator": "krum", "client-selector": "all", "num-clients": 5},
    "bulyan with all": {"aggregator": "bulyan", "client-selector": "all", "num-clients": 10},
    "all without a fraction": {"client-selector": "all", "fraction-train": 0.0},
    "replies of all": {"client-selector": "all", "round.min-replies": 10},
    "count instead of fraction": {"fraction-train": 0.0, "clients-per-round": 2},
    "no malicious": {"aggregator": "krum", "clients-per-round": 3, "aggregation.malicious": 0},
    "a small fraction": {"fraction-train": 0.001},
    "evaluation with data": {"fraction-evaluate": 0.5, "data.client-test-share": 0.2},
}


@pytest.mark.parametrize("keys", POSSIBLE.values(), ids=POSSIBLE.keys())
def test_possible_combinations_are_not_refused(keys: dict[str, Any]) -> None:
    assert isinstance(read_config(keys), RunConfig)


def test_the_config_cannot_be_changed() -> None:
    config = read_config({})
    with pytest.raises(ValueError, match="frozen"):
        config.seed = 3


def test_the_task_gets_what_the_config_says() -> None:
    keys: dict[str, Any] = {
        "task": "blobs",
        "split.alpha": 0.7,
        "net.hidden": 5,
    }
    spec = read_config({**keys, "seed": 9, "data.path": "/data"}).task_spec()
    assert (spec.task, spec.alpha, spec.hidden) == ("blobs", 0.7, 5)
    assert (spec.seed, spec.path) == (9, "/data")


def test_nearest_stays_silent_when_nothing_is_near() -> None:
    assert nearest("zzzzzz", ["fedavg"]) == ""


scalars = st.one_of(
    st.integers(), st.floats(), st.booleans(), st.text(max_size=20), st.sampled_from(list(PRESETS))
)


@settings(max_examples=300, deadline=None)
@given(
    st.dictionaries(
        st.one_of(st.sampled_from(list(DEFAULTS)), st.text(max_size=12)), scalars, max_size=6
    )
)
def test_any_scalars_give_a_config_or_a_config_error(flat: dict[str, Any]) -> None:
    config, text = None, ""
    try:
        config = read_config(flat)
    except ConfigError as error:
        text = str(error)
    if config is None:
        assert text.startswith("run config: ")
        assert any(key in text for key in flat)
    else:
        assert read_config(config.flat()) == config
