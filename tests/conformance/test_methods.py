"""Promises that the declaration of every method keeps."""

import inspect
from typing import Any

import pytest
from forager.client_app.hooks.base import ClientHook
from forager.core.config import RunConfig, combinations, default_config, read_config
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
from forager.strategies.build import build_strategy
from forager.strategies.cohorts.base import CohortRule
from forager.strategies.layers.base import Layer

ALL = all_methods()
PLACES = ("core", "layer", "outer", "hook")
NEEDS = set(combinations._NEEDS)  # what can be checked
every_method = pytest.mark.parametrize("method", ALL, ids=str)
every_section = pytest.mark.parametrize("section", all_settings(), ids=lambda s: s.__name__)


def places(method: Method) -> dict[str, str]:
    """Where the halves of a method are, by the name of the door."""
    found = {door: getattr(method, door) for door in PLACES}
    if method.axis == "cohorts":  # elsewhere a rule is a name, not a place
        found["rule"] = getattr(method, "rule", "")
    return {door: place for door, place in found.items() if place}


def example(method: Method) -> dict[str, Any]:
    """A run config that chooses a method, and what it requires."""
    needed = {axis: allowed[0] for axis, allowed in method.requires.items()}
    for need in method.needs:
        offering = [other for other in ALL if need in other.offers]
        if offering and not any(other.default for other in offering):
            needed[offering[0].axis] = offering[0].name
    if method.axis == "similarity" and not method.default:
        needed["cohorts"] = "similarity"
    return {**needed, method.axis: method.name, "fraction-train": 1.0}


@every_method
def test_all_its_places_can_be_loaded(method: Method) -> None:
    for door, place in places(method).items():
        assert callable(load(place)), f"{door} = {place!r}"


@every_method
def test_its_halves_are_what_their_doors_are_for(method: Method) -> None:
    found = {door: load(place) for door, place in places(method).items()}
    if "hook" in found:
        assert issubclass(found["hook"], ClientHook)
    if "rule" in found:
        assert issubclass(found["rule"], CohortRule)
    for door in ("layer", "outer"):
        if door in found:
            assert found[door].__name__ == "of_run", f"{door}: a class method that takes a config"
            layer = found[door].__self__
            assert issubclass(layer, Layer) or method.axis == "similarity"
            assert list(inspect.signature(found[door]).parameters)[-1] == "config"


@every_method
def test_it_says_what_it_does_in_one_line(method: Method) -> None:
    assert method.about
    assert "\n" not in method.about
    assert method.about == method.about.strip(" .")
    assert str(method) == f"{method.axis} = {method.name!r}"
    assert method.name == method.name.lower().strip()


@every_method
def test_it_names_only_what_there_is(method: Method) -> None:
    assert method.axis in AXES
    assert set(method.needs) <= NEEDS
    keys = {key.partition(".")[2] for s in method.settings for key in s.own_keys()}
    assert set(method.reads) <= keys, "reads a key that none of its sections has"
    for axis, allowed in method.requires.items():
        assert axis in AXES
        assert set(allowed) <= set(methods(axis))
    for others in method.presets.values():
        assert method.axis not in others
        assert all(value in methods(axis) for axis, value in others.items())


@every_method
def test_it_can_be_chosen_and_built(method: Method) -> None:
    config = read_config(example(method))
    assert method in chosen(config.axes())
    assert method.needs_in(config) == method.needs or set(method.needs_in(config)) <= NEEDS
    assert method.least_clients(config) >= 1
    assert isinstance(build_strategy(config), Layer)


def test_what_methods_offer_is_needed_by_some() -> None:
    offered = {offer for method in ALL for offer in method.offers}
    assert offered <= {need for method in ALL for need in method.needs} <= NEEDS


def test_names_are_unique_on_each_axis() -> None:
    names = [(method.axis, method.name) for method in ALL]
    assert len(names) == len(set(names))
    assert sum(len(methods(axis)) for axis in AXES) == len(ALL)


@pytest.mark.parametrize("axis", AXES)
def test_exactly_one_method_of_an_axis_is_the_default(axis: str) -> None:
    defaults = [name for name, method in methods(axis).items() if method.default]
    assert defaults == [axis_defaults()[axis]] == list(methods(axis))[:1]


def test_the_defaults_are_those_of_a_config_that_chooses_nothing() -> None:
    config = read_config({})
    assert axis_defaults() == {axis: config.axes()[axis] for axis in AXES}
    assert axis_defaults() == {axis: RunConfig().axes()[axis] for axis in AXES}
    assert chosen(config.axes()) == [methods(axis)[axis_defaults()[axis]] for axis in AXES]


@every_section
def test_every_setting_is_described(section: type[Settings]) -> None:
    assert inspect.getdoc(section)
    assert section.__doc__ != Settings.__doc__
    for name, field in section.model_fields.items():
        assert field.description, f"{section.__name__}.{name}"
        assert field.description[:1] == field.description[:1].lower() or '"' in field.description
        assert not field.is_required(), f"{section.__name__}.{name} has no default"


@every_section
def test_a_section_is_the_prefix_of_its_keys(section: type[Settings]) -> None:
    assert section.section
    assert "." not in section.section
    for key in section.own_keys():
        prefix, _, name = key.rpartition(".")
        assert prefix == section.section
        assert name == name.lower().replace("_", "-")
        assert key in default_config()
    dumped = section().model_dump(by_alias=True)
    assert {f"{section.section}.{name}": value for name, value in dumped.items()} == {
        key: default_config()[key] for key in section.own_keys()
    }


@every_section
def test_a_config_hands_out_the_settings_of_a_method(section: type[Settings]) -> None:
    settings = read_config({})[section]
    assert type(settings) is section
    assert settings == section()


def test_no_two_sections_share_a_prefix() -> None:
    names = [section.section for section in all_settings()]
    general = {key.partition(".")[0] for key in default_config()} - set(names)
    assert len(names) == len(set(names))
    assert not set(names) & general


def test_every_setting_is_read_by_some_method() -> None:
    read = {key for method in ALL for key in method.keys_read()}
    assert read == {key for section in all_settings() for key in section.own_keys()}


@pytest.mark.parametrize("name", presets())
def test_every_preset_reads_as_a_config(name: str) -> None:
    config = read_config({"strategy": name})
    assert config.strategy == name
    for axis, value in presets()[name].items():
        assert config.axes()[axis] == value
    assert isinstance(build_strategy(config), Layer)


def test_no_two_methods_declare_the_same_preset() -> None:
    names = [name for method in ALL for name in method.presets]
    assert sorted([*names, "forager"]) == sorted(presets())
    assert next(iter(presets())) == "fedavg"


@pytest.mark.parametrize("axis", AXES)
def test_an_unknown_name_is_answered_with_all_there_are(axis: str) -> None:
    with pytest.raises(ValueError, match=f"{axis} = 'unheard-of': unknown; allowed are") as caught:
        read_config({axis: "unheard-of"})
    assert all(name in str(caught.value) for name in methods(axis))
