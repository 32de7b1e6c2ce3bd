"""What all client selectors share: the layer around the rule, and how it gets its summaries."""

from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import Field

from .base import Configured, Count, Method, Settings, key

PROXY_BATCHES = 4  # mini-batches of the proxy update that a similarity is computed from


class Summary(Settings):
    """What clients report before they are chosen, and how."""

    section = "summary"
    mode: Literal["query", "piggyback"] = key(
        "query",
        '"query" asks clients before choosing; "piggyback" uses what they reported in their '
        "last training reply",
    )
    power: Annotated[float, Field(ge=1.0)] = key(4.0, "p of the norm in which updates are compared")
    form: Literal["unit", "printed", "index-overlap"] = key(
        "unit",
        'how updates are compared: "unit" divides both by their norm first; "printed" is eq. 8 '
        'and 9 as printed; "index-overlap" (ours, after IOS) is the share of their largest '
        "entries that they have in common",
    )
    ask_at_most: Count = key(
        0, "ask at most this many clients per round, the oldest first; 0 asks all"
    )


@dataclass(frozen=True, kw_only=True)
class Selector(Method):
    """A rule that chooses clients. Settings in the section of its own name go to its core."""

    axis: str = "client-selector"
    layer: str = "strategies.layers.selection:Selection.of_run"

    def arguments(self, config: Configured) -> dict[str, Any]:
        """Return what its core is made with in a run."""
        own = next((config[kind] for kind in self.settings if kind.section == self.name), None)
        return {} if own is None else own.model_dump()
