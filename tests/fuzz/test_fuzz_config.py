"""The config reader takes any keys and values: a config, or one error that names what is wrong."""

from typing import Any

import pytest
from forager.core.config import ConfigError, RunConfig, default_config, read_config
from forager.core.config.overrides import parse_overrides
from forager.core.methods.catalogue import all_methods
from fuzzing import fuzz
from hypothesis import given
from hypothesis import strategies as st

DEFAULTS = default_config()
NAMES = sorted({method.name for method in all_methods()})

values: st.SearchStrategy[Any] = st.one_of(
    st.integers(-3, 200),
    st.integers(),
    st.floats(),
    st.booleans(),
    st.sampled_from(NAMES),
    st.text(max_size=12),
)
near = st.one_of(
    *(
        st.tuples(st.just(key), st.one_of(st.just(default), values))
        for key, default in DEFAULTS.items()
    )
)
flats = st.one_of(
    st.lists(near, max_size=8).map(dict),
    st.dictionaries(st.one_of(st.sampled_from(list(DEFAULTS)), st.text(max_size=12)), values),
)


def read(flat: dict[str, Any]) -> tuple[RunConfig | None, str]:
    try:
        return read_config(flat), ""
    except ConfigError as error:
        return None, str(error)


@fuzz
@given(flats)
def test_any_values_make_a_config_or_one_clear_error(flat: dict[str, Any]) -> None:
    config, complaint = read(flat)
    if config is None:
        assert complaint.startswith("run config: ")
    else:
        assert read_config(config.flat()) == config


@fuzz
@given(st.sampled_from(list(DEFAULTS)), values)
def test_an_error_names_the_key(key: str, value: Any) -> None:
    config, complaint = read({key: value})
    assert config is not None or key.partition(".")[0] in complaint


words = st.one_of(
    st.text(max_size=30),
    st.lists(
        st.tuples(st.sampled_from(list(DEFAULTS)), st.text(max_size=12)).map("=".join), max_size=4
    ).map(" ".join),
)


@fuzz
@given(st.lists(words, max_size=3))
def test_any_command_line_is_read_or_refused(texts: list[str]) -> None:
    try:
        found = parse_overrides(texts)
    except ConfigError:
        return
    assert all(isinstance(key, str) for key in found)


def test_what_nests_deeply_is_refused() -> None:
    with pytest.raises(ConfigError):
        parse_overrides(["seed=" + "[" * 5000])
