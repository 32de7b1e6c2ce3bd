"""Small functions of core/config, each by an example."""

import pytest
from forager.core.config import ConfigError, read_config
from forager.core.config.overrides import _quotes, toml_value
from forager.core.config.reading import name_now, without_fixed
from forager.core.config.run_config import flattened


def test_without_fixed_of_moved():
    assert (without_fixed({"summary.batches": 4, "ios.ema": 0.1, "seed": 1})) == {
        "ios.ema": 0.1,
        "seed": 1,
    }


def test_name_now_of_moved():
    assert (name_now("gcfl-paper"), name_now("gcfl")) == ("gcfl", "gcfl")


def test_quotes_of_overrides():
    assert (_quotes(["seed=1 strategy=cosage"])) == "put text in quotes: strategy='cosage'; "


def test_toml_value_of_overrides():
    assert (toml_value(True), toml_value(1e-05), toml_value("a b"), toml_value("it's")) == (
        "true",
        "1e-05",
        "'a b'",
        '"it\'s"',
    )


def test_flattened_of_run_config():
    assert (flattened({"seed": 1, "cosage": {"silent-ratio": 0.1}})) == {
        "seed": 1,
        "cosage.silent-ratio": 0.1,
    }


@pytest.mark.parametrize("value", [[], [1], {}])
def test_a_value_that_is_a_list_or_a_table_is_refused(value):
    with pytest.raises(ConfigError, match=r"task = .*: must be text, a number, true or false"):
        read_config({"task": value})
