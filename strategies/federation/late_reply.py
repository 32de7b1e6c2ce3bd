"""A training reply that came after its round: too late for the model, not for what it teaches."""

from dataclasses import dataclass

from flwr.app import ArrayRecord, Message


@dataclass(frozen=True)
class LateReply:
    """A reply, and what the server itself knows of the message that it answers.

    It is never aggregated: the model has moved on (``aggregation.buffer`` is the mode that uses
    such work). What it says of its client is as true as ever, of the round it belongs to. See
    :meth:`strategies.layers.base.Layer.hear_late`.

    Attributes
    ----------
    reply : Message
        What the client answered.
    round : int
        In which it was asked.
    now : int
        The round in which the reply is looked at.
    model : ArrayRecord
        What the client was sent.
    cohort : str or None
        The cohort that it trained for, if there are any.
    """

    reply: Message
    round: int
    now: int
    model: ArrayRecord
    cohort: str | None = None
