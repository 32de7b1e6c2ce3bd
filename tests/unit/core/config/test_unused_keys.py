"""Keys that are set although nothing in the run reads them are named, all others are not."""

import pytest
from forager.core.config import default_config, read_config
from forager.core.config.combinations import unused_keys, unwise
from forager.core.methods.base import Method
from forager.core.methods.catalogue import AXES, all_methods, methods, presets
from other_values import OTHER, config_with

DEFAULTS = default_config()
EVERY = pytest.mark.parametrize("method", all_methods(), ids=str)


def test_the_other_values_are_others() -> None:
    assert all(OTHER[key] != DEFAULTS[key] for key in OTHER)
    assert {key.partition(".")[0] for key in OTHER} > {
        "coreset",
        "cohort",
        "ios",
        "aggregation",
    }


@EVERY
def test_what_a_method_does_not_read_of_its_sections_is_named(method: Method) -> None:
    config, read = config_with(method.axis, method.name), method.keys_read()
    for key in (key for section in method.settings for key in section.own_keys()):
        expected = [] if key in read else [key]
        assert unused_keys(config, {key: OTHER[key]}) == expected


@EVERY
def test_what_belongs_to_other_methods_is_named(method: Method) -> None:
    config = config_with(method.axis, method.name)
    # whatever the method
    for_all = {"aggregation.buffer", "aggregation.staleness", "aggregation.late"}
    if method.axis != "aggregator":
        for_all.add("aggregation.learning-rate")  # of fedavg
    assert set(unused_keys(config, OTHER)) == set(OTHER) - set(method.keys_read()) - for_all


@EVERY
def test_what_is_set_to_its_default_is_not_named(method: Method) -> None:
    assert unused_keys(config_with(method.axis, method.name), DEFAULTS) == []


@EVERY
def test_a_method_reads_only_keys_that_there_are(method: Method) -> None:
    own = [key for section in method.settings for key in section.own_keys()]
    names = [key.partition(".")[2] for key in own]
    assert len(set(names)) == len(names), "a name in two sections: which of them is read?"
    assert set(method.reads) <= set(names)
    of_layer = {"cohort.share"} if method.axis == "cohorts" else set()
    assert set(method.keys_read()) - of_layer <= set(own) <= set(OTHER)
    for section in method.settings:
        assert any(key in method.keys_read() for key in section.own_keys())


def test_every_key_of_a_method_is_read_by_some_method() -> None:
    assert {key for method in all_methods() for key in method.keys_read()} == set(OTHER)


def test_what_belongs_to_no_method_is_never_named() -> None:
    general = {"seed": 5, "round.deadline": 3.0, "net.hidden": 9, "quarantine.norm-factor": 2.0}
    assert unused_keys(read_config(general), general) == []


@pytest.mark.parametrize("preset", presets())
def test_a_key_is_used_if_any_method_of_the_run_reads_it(preset: str) -> None:
    config = read_config({"strategy": preset})
    active = [methods(axis)[config.axes()[axis]] for axis in AXES]
    read = {key for method in active for key in method.keys_read()}
    assert set(unused_keys(config, OTHER)) == set(OTHER) - read
    assert unused_keys(config, {**DEFAULTS, "strategy": preset}) == []


@pytest.mark.parametrize(
    ("given", "unused"),
    [
        ({"data-selector": "crust", "coreset.ridge": 3.0}, ["coreset.ridge"]),
        ({"data-selector": "gcfl", "coreset.ridge": 3.0}, []),
        ({"data-selector": "trusted", "coreset.ridge": 3.0}, ["coreset.ridge"]),
        ({"data-selector": "random", "coreset.target": "own"}, ["coreset.target"]),
        ({"data-selector": "trusted", "coreset.per-class": False}, ["coreset.per-class"]),
        ({"strategy": "split-test", "cohort.number": 5, "split-test.parts": 2}, ["cohort.number"]),
        ({"cohorts": "ifca", "cohort.number": 5, "split-test.parts": 2}, ["split-test.parts"]),
        ({"ios.signatures": True}, ["ios.signatures"]),
        ({"strategy": "ios-centred", "ios.signatures": True}, []),
        ({"strategy": "ios-centred", "ios.neighbours": 3}, ["ios.neighbours"]),
        ({"strategy": "ios-centred", "ios.at": "trained", "ios.share": 0.1}, []),
        ({"strategy": "ios", "ios.at": "trained"}, []),
        (
            {"strategy": "ios", "similarity": "signed-overlap", "ios.at": "trained"},
            ["ios.at"],
        ),
        ({"strategy": "ios", "ios.share": 0.1, "ios.coverage": 0.5}, []),
        ({"strategy": "ios-centred", "ios.coverage": 0.5}, ["ios.coverage"]),
        (
            {"strategy": "ios-centred", "similarity": "signed-overlap", "ios.samples": 9},
            ["ios.samples"],
        ),
        ({"aggregator": "krum", "aggregation.keep": 2}, ["aggregation.keep"]),
        ({"top-k.density": 0.2}, ["top-k.density"]),
        ({"strategy": "cosage", "top-k.density": 0.2, "summary.power": 2.0}, []),
        ({"client-selector": "local-loss", "summary.power": 2.0}, ["summary.power"]),
        ({"data-selector": "unlimited", "stream.capacity": 3}, ["stream.capacity"]),
        ({"dp.clip": 2.0, "prox.mu": 1.0}, ["dp.clip", "prox.mu"]),
    ],
    ids=lambda value: ",".join(value),
)
def test_examples(given: dict[str, object], unused: list[str]) -> None:
    assert unused_keys(read_config(given), given) == unused  # type: ignore[arg-type]


def test_what_suffers_names_methods_that_exist() -> None:
    for axis in AXES:
        for method in methods(axis).values():
            for other, name in method.suffers:
                assert name in methods(other)
    warned = unwise(read_config({"aggregator": "trimmed-mean", "uplink": "top-k"}))
    assert len(warned) == 1
    assert "raise top-k.density" in warned[0]
