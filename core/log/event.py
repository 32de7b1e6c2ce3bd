"""What events are made of."""

import math
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field


def _finite(value: float | None) -> float | None:
    """Let a number that JSON cannot hold stand for an unknown one."""
    return value if value is not None and math.isfinite(value) else None


def _all_finite(values: Sequence[float | None]) -> Sequence[float | None]:
    """Do so for a column at once: a call per number would be one per client and round."""
    if all(value is None or math.isfinite(value) for value in values):
        return values
    return [_finite(value) for value in values]


Round = Annotated[int, Field(ge=0, le=10**6)]  # tables over all rounds must fit into memory
Count = Annotated[int, Field(ge=0, le=10**15)]
Clients = Annotated[int, Field(ge=0, le=10**7)]
Float = Annotated[float, Field(allow_inf_nan=True)]
Number = Annotated[Float | None, AfterValidator(_finite)]
Numbers = Annotated[Sequence[Float | None], AfterValidator(_all_finite)]

EVENTS: dict[str, type["Event"]] = {}  # every kind by its name


class LogRecord(BaseModel):
    """What a log holds, under names with dashes."""

    model_config = ConfigDict(
        frozen=True,
        extra="ignore",
        alias_generator=lambda name: name.replace("_", "-"),
        populate_by_name=True,
        allow_inf_nan=False,
        coerce_numbers_to_str=True,  # names of clients and cohorts may have been written as numbers
    )


class Event(LogRecord):
    """Something that happened, in a round and perhaps in one cohort."""

    name: ClassVar[str]
    of_data: ClassVar[frozenset[str]] = frozenset()  # fields that clients computed from their data

    round: Round | None = None
    cohort: str | None = None
    time: Number = None  # seconds since the run began, or was resumed

    def __init_subclass__(cls, *, name: str) -> None:
        cls.name = name
        EVENTS[name] = cls

    @classmethod
    def upgraded(cls, fields: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the fields of a line under their names of today."""
        return fields

    def without_data(self) -> "Event":
        """Return the event without what clients computed from their data."""
        usual = {name: type(self).model_fields[name].default for name in self.of_data}
        return self.model_copy(update=usual) if usual else self

    def to_dict(self) -> dict[str, Any]:
        """Return the event as JSON can hold it; what is unknown is left out."""
        fields = self.model_dump(by_alias=True, exclude_none=True)
        return {"event": self.name, **fields}


class JudgedBy(LogRecord):
    """A metric of the run: its name, which way is better, whether it reads as a percentage."""

    name: Annotated[str, Field(pattern=r"^[a-z][a-z0-9-]{0,39}$")]
    higher_is_better: bool = True
    share: bool = False


class ReplySeconds(BaseModel):
    """How long replies took: in the middle, and those of the slowest clients."""

    model_config = ConfigDict(frozen=True, allow_inf_nan=False)

    median: float
    slowest: dict[str, float] = {}


class Spread(LogRecord):
    """How a metric differs between clients; the worst tenth is that of the worst clients."""

    mean: Number = None
    variance: Number = None
    worst_10: Number = None
    best_10: Number = None


def shorten(text: str, length: int) -> str:
    r"""Cut a text that strangers wrote to one line of a length, unprintable characters replaced."""
    line = " ".join(text.split())
    cut = line if len(line) <= length else line[: length - 1] + "…"
    return "".join(char if char.isprintable() else "�" for char in cut)
