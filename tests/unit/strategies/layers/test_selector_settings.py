"""What the run config says about a selector reaches it."""

from typing import Any

import pytest
from fakes import inside
from forager.core.config import ConfigError, read_config
from forager.selectors.client_selectors.oort import Oort
from forager.strategies.build import build_strategy
from forager.strategies.layers.selection import Selection


def selector_of(**keys: Any) -> Any:
    flat = {key.replace("__", ".").replace("_", "-"): value for key, value in keys.items()}
    return inside(build_strategy(read_config(flat)), Selection).selector


def test_settings_reach_their_selector() -> None:
    assert selector_of(client_selector="cosage", cosage__silent_ratio=0.25).silent_ratio == 0.25
    cooled = selector_of(
        client_selector="dissimilarity-cooldown", dissimilarity_cooldown__silent_ratio=0.3
    )
    assert cooled.silent_ratio == 0.3
    chosen = selector_of(client_selector="power-of-choice", power_of_choice__candidates=7)
    assert chosen.candidates == 7
    oort = selector_of(
        client_selector="oort",
        oort__exploration=0.5,
        oort__least_exploration=0.1,
        oort__slow_penalty=1.5,
        oort__blacklist_after=0,
    )
    assert (oort.state_dict()["exploration"], oort.floor) == (0.5, 0.1)
    assert (oort.alpha, oort.blacklist_after) == (1.5, 0)


def test_oort_is_by_default_what_its_paper_says() -> None:
    built, plain = selector_of(client_selector="oort"), Oort()
    assert vars(built) == vars(plain)


@pytest.mark.parametrize(
    ("key", "value"),
    [("oort.exploration", 1.5), ("oort.slow-penalty", -1.0), ("oort.blacklist-after", -1)],
)
def test_impossible_settings_are_refused_by_name(key: str, value: float) -> None:
    with pytest.raises(ConfigError, match=key):
        read_config({"client-selector": "oort", key: value})
