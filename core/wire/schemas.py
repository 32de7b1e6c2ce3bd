"""What clients may say of themselves: one declared schema for each record of plain values.

Whatever a client sends is checked against its schema where it arrives: types, ranges and sizes.
What a schema does not name is not read.
"""

from collections.abc import Mapping
from typing import Annotated, Any, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError

MOST_SAMPLES = 10**12  # of one client: sums of such counts still are numbers
# Of a mean or a spread of inputs, 1e15 is the most: its square is still exact enough.
_MOST_LABELS = 100_000  # entries of one list
_MOST_COHORTS = 1000  # that one client remembers; nobody can know more

Samples = Annotated[int, Field(ge=0, le=MOST_SAMPLES)]
Rate = Annotated[float, Field(ge=0, lt=1e9, allow_inf_nan=False)]
Places = Annotated[int, Field(ge=0, lt=10**9)]
Value = Annotated[float, Field(ge=-1e15, le=1e15, allow_inf_nan=False)]
Seconds = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class BadReply(ValueError):
    """Why a reply, or an answer to a question, is set aside."""


class Told(BaseModel):
    """A record of plain values that a client sends."""

    model_config = ConfigDict(strict=True, frozen=True, extra="ignore", populate_by_name=True)

    @classmethod
    def read(cls, values: Mapping[str, Any] | None, what: str, **lengths: int) -> Self:
        """Return a record with lists of these lengths; :class:`BadReply` if it makes no sense."""
        if values is None:
            raise BadReply(f"{what}: the reply does not say")
        try:
            told = cls.model_validate(dict(values))
        except ValidationError as error:
            fault = error.errors(include_url=False)[0]
            name = str(fault["loc"][0]) if fault["loc"] else what
            text = fault["msg"][0].lower() + fault["msg"][1:]
            value = repr(values.get(name))[:80]
            raise BadReply(f"{what}: {name} = {value}: {text}") from error
        for name, length in lengths.items():
            if len(getattr(told, name)) != length:
                raise BadReply(
                    f"{what}: {name} of {len(getattr(told, name))} entries, not {length}"
                )
        return told


class CoresetTold(Told):
    """What a client trained on; in simulation also its clean share and, when new, its labels."""

    round: Annotated[int, Field(ge=0)]
    size: Annotated[int, Field(ge=1, le=MOST_SAMPLES)]
    seconds: Seconds
    clean: Annotated[float, Field(ge=0, le=1)] | None = None
    labels: Annotated[list[Samples], Field(max_length=_MOST_LABELS)] = []


class StreamTold(Told):
    """How a client's stream is: samples of each label per round and in store, and its room."""

    velocity: Annotated[list[Rate], Field(max_length=_MOST_LABELS)]
    stored: Annotated[list[Rate], Field(max_length=_MOST_LABELS)]
    capacity: Places
    arrived: Places
    kept: Places


class MomentsTold(Told):
    """Mean and spread of a client's inputs, one number per feature."""

    count: Annotated[float, Field(gt=0, le=MOST_SAMPLES, alias="num-examples")]
    mean: Annotated[list[Value], Field(max_length=_MOST_LABELS)]
    spread: Annotated[list[Annotated[float, Field(ge=0, le=1e15)]], Field(max_length=_MOST_LABELS)]


class LossesTold(Told):
    """The loss of every model that a client was sent, in the order of their names."""

    losses: Annotated[list[float], Field(max_length=_MOST_LABELS)]


class SparseTold(Told):
    """The largest changes of a model, encoded."""

    payload: bytes


class AffinityTold(Told):
    """What an Auxo client remembers of cohorts, column by column."""

    cohorts: Annotated[list[str], Field(max_length=_MOST_COHORTS)]
    rewards: list[float]
    indices: list[int]
    known: list[bool]
    serial: int
