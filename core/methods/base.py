"""Methods: one declaration that lists everything about a method.

A declaration holds no code of its own. It says on which axis of the run config the method is
chosen, what can be set, where its halves live (as text, imported when a run needs them), and what
it needs, sends and releases. What cannot be combined follows from that; so do the defaults in
``pyproject.toml``, the table of keys in the docs, and the stack of layers.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import import_module
from operator import attrgetter
from typing import Annotated, Any, ClassVar, Literal, Protocol, TypeVar

from pydantic import BaseModel, ConfigDict, Field

_ROOT = __name__.partition(".")[0]

S = TypeVar("S", bound="Settings")

Share = Annotated[float, Field(ge=0.0, le=1.0)]
SomeShare = Annotated[float, Field(gt=0.0, le=1.0)]
BelowOne = Annotated[float, Field(ge=0.0, lt=1.0)]
Positive = Annotated[float, Field(gt=0.0)]
NonNegative = Annotated[float, Field(ge=0.0)]
Count = Annotated[int, Field(ge=0)]
AtLeastOne = Annotated[int, Field(ge=1)]


def key(default: Any, description: str) -> Any:
    """Return what a key of the run config is by default, and about."""
    return Field(default=default, description=description)


class Settings(BaseModel):
    """Settings under one prefix of the run config: no other keys or types, nothing infinite."""

    model_config = ConfigDict(
        strict=True,
        frozen=True,
        extra="forbid",
        allow_inf_nan=False,
        alias_generator=lambda name: name.replace("_", "-"),
        populate_by_name=True,
    )
    section: ClassVar[str] = ""  # the prefix

    @classmethod
    def own_keys(cls) -> list[str]:
        """Return the keys of the run config that are set here, such as ``prox.mu``."""
        return [f"{cls.section}.{name.replace('_', '-')}" for name in cls.model_fields]

    def problems(self) -> list[str]:
        """Return what no single key gets wrong but several do together."""
        return []


class Configured(Protocol):
    """A run config, as far as methods look at it: ``config[CosAge].silent_ratio``."""

    @property
    def num_server_rounds(self) -> int:
        """How many rounds the run has."""

    def __getitem__(self, kind: type[S]) -> S:
        """Return the settings of a method."""


@dataclass(frozen=True, kw_only=True)
class Method:
    """One choice on one axis (``<axis> = '<name>'``); places in code are ``module:attribute``."""

    axis: str
    name: str
    about: str  # what it does, in one line
    paper: str = ""  # who published it; only if it runs what they published
    after: str = ""  # what it is made after, if it is ours
    default: bool = False  # whether it is used when neither the user nor a preset chooses
    # Presets that choose it, each with the values of other axes
    presets: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    settings: tuple[type[Settings], ...] = ()  # sections of the run config that it reads
    reads: tuple[str, ...] = ()  # the keys that it reads of them, without prefix; all if none
    core: str = ""  # where the algorithm is
    # Its half on the server: ``build(inner, config, federation)`` returns a layer around what
    # trains one model, or (outer) around the whole stack
    layer: str = ""
    outer: str = ""
    hook: str = ""  # its half on the client, a ``ClientHook``
    needs: tuple[str, ...] = ()  # what it cannot do without; see ``core.config.combinations``
    offers: tuple[str, ...] = ()  # what others may need
    sends: tuple[str, ...] = ()  # what clients send of their data besides the model they trained
    # What the server hands to clients that depends on others' data, besides the model
    releases: tuple[str, ...] = ()
    requires: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # values of other axes
    # Values of other axes, as ``(axis, name)``, with which it works but badly, and why
    suffers: Mapping[tuple[str, str], str] = field(default_factory=dict)
    norms_vary: float = 1.0  # how many times more than usual honest updates differ in length
    # As measured, how many times the model the server holds at once for each client that is asked,
    # and the local engine for each of its clients
    models_per_reply: float = 0.0
    models_per_simulated_reply: float = 0.0
    models_per_virtual_client: float = 0.0

    @property
    def kind(self) -> Literal["paper", "ours", "baseline"]:
        """Whose it is: a paper's, ours (made after a paper's), or what others are compared with."""
        if self.paper:
            return "paper"
        return "ours" if self.after else "baseline"

    def cited(self) -> str:
        """Return who is to be credited, and for what."""
        return self.paper or (f"after {self.after}" if self.after else "")

    def keys_read(self) -> list[str]:
        """Return the keys of the run config that it reads."""
        found = [key for section in self.settings for key in section.own_keys()]
        return [k for k in found if not self.reads or k.partition(".")[2] in self.reads]

    def needs_in(self, config: "Configured") -> tuple[str, ...]:
        """Return what it needs with the settings of a run."""
        return self.needs

    def suffers_in(self, config: "Configured") -> Mapping[tuple[str, str], str]:
        """Return what it works badly with, with the settings of a run."""
        return self.suffers

    def unprotected(self, config: "Configured") -> list[str]:
        """Return what clients send of their data without noise, where the run promises noise."""
        return list(self.sends)

    def noise_multipliers(self, config: "Configured") -> list[float]:
        """Return the noise over the clip of each thing that clients send besides their model."""
        return []

    def least_clients(self, config: "Configured") -> int:
        """Return the fewest clients per round that it works with."""
        return 1

    def __str__(self) -> str:
        return f"{self.axis} = {self.name!r}"


def load(place: str) -> Any:
    """Import what ``module:attribute`` names below this package."""
    module, attribute = place.split(":")
    return attrgetter(attribute)(import_module(f"{_ROOT}.{module}"))
