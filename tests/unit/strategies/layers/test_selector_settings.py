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
    assert selector_of(client_selector="dissimilarity-cooldown").silent_ratio == 0.5


def test_oort_is_by_default_what_its_paper_says() -> None:
    built, plain = selector_of(client_selector="oort"), Oort()
    assert vars(built) == vars(plain)


def test_impossible_settings_are_refused_by_name() -> None:
    with pytest.raises(ConfigError, match=r"cosage\.silent-ratio = 1\.5"):
        read_config({"client-selector": "cosage", "cosage.silent-ratio": 1.5})
