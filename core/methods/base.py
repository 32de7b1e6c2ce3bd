"""What a method is: one declaration that lists everything about it.

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


class Settings(BaseModel):
    """Settings under one prefix of the run config: no other keys, no other types, nothing infinite.

    The docstring of a subclass says what its settings are about; each field has a description.
    """

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
        """Return the keys of the run config that are set here.

        >>> class Prox(Settings):
        ...     section = "prox"
        ...     mu: float = 0.1
        >>> Prox.own_keys()
        ['prox.mu']
        """
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
    """One choice on one axis of the run config.

    Parameters
    ----------
    axis, name : str
        ``<axis> = '<name>'`` in the run config chooses it.
    about : str
        What it does, in one line.
    paper : str, optional
        Who published it; only if it runs what they published.
    after : str, optional
        What it is made after, if it is ours.
    default : bool (default: False)
        Whether it is used when neither the user nor a preset chooses.
    presets : mapping, optional
        Presets that choose it, each with the values of other axes.
    settings : tuple of Settings classes
        Sections of the run config that it reads.
    reads : tuple of str, optional
        The keys that it reads of those sections, without prefix; all if none are named.
    core : str
        Where the algorithm is, as ``module:attribute`` below this package.
    layer : str
        Its half on the server: ``build(inner, config, federation)`` returns a layer around what
        trains one model.
    outer : str
        Likewise, around the whole stack.
    hook : str
        Its half on the client, a ``ClientHook``.
    needs : tuple of str
        What it cannot do without; see ``core.config.combinations``.
    offers : tuple of str
        What others may need.
    sends : tuple of str
        What clients send of their data besides the model they trained.
    releases : tuple of str
        What the server hands to clients that depends on other clients' data, besides the model.
    requires : mapping
        Values that other axes must have.
    suffers : mapping
        Values of other axes, as ``(axis, name)``, with which it works but badly, and why.
    norms_vary : float (default: 1.0)
        How many times more than usual the updates of honest clients differ in length with it.
    models_per_reply, models_per_simulated_reply, models_per_virtual_client : float (default: 0.0)
        As measured, how many times the model the server holds at once for each client that is
        asked, what it holds more where replies come as one table of the local engine, and what
        that holds for each of its clients.
    """

    axis: str
    name: str
    about: str
    paper: str = ""
    after: str = ""
    default: bool = False
    presets: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    settings: tuple[type[Settings], ...] = ()
    reads: tuple[str, ...] = ()
    core: str = ""
    layer: str = ""
    outer: str = ""
    hook: str = ""
    needs: tuple[str, ...] = ()
    offers: tuple[str, ...] = ()
    sends: tuple[str, ...] = ()
    releases: tuple[str, ...] = ()
    requires: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    suffers: Mapping[tuple[str, str], str] = field(default_factory=dict)
    norms_vary: float = 1.0
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
    """Import what ``module:attribute`` names below this package.

    >>> load("selectors.client_selectors.plain:Everyone").__name__
    'Everyone'
    """
    module, attribute = place.split(":")
    return attrgetter(attribute)(import_module(f"{_ROOT}.{module}"))
