"""Random numbers in all that travels, so that nobody can name it beforehand.

The SuperLink calls objects by a hash of their content, and lets every enrolled node register any
name. Whoever can foresee what will be sent registers it as something else, and the SuperLink
refuses the true one: that ends the run, or the SuperNode that wanted to reply.
"""

import secrets
from collections.abc import Iterable
from typing import Any

from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict

from .records import entries, filled

SALT = "salt"
_BYTES = 16
_ALIGNED = 64  # bytes that the header of an .npy file is a multiple of
_LENGTH = slice(8, 10)  # where it says how long it is


def salted(messages: Iterable[Message]) -> list[Message]:
    """Return messages that say the same in objects that are new; shared records stay shared."""
    salt = secrets.token_bytes(_BYTES)
    made: dict[int, Any] = {}  # most messages share records

    def new(record: Any) -> Any:
        if id(record) not in made:
            made[id(record)] = _with_salt(record, salt)
        return made[id(record)]

    copies = []
    for message in messages:
        copy = Message.__new__(Message)
        copy.__dict__.update(message.__dict__)
        if message.has_content():
            records = {name: new(record) for name, record in entries(message.content).items()}
            own = ConfigRecord({SALT: secrets.token_bytes(_BYTES)})
            copy.__dict__["_content"] = filled(RecordDict, {**records, SALT: own})
        copies.append(copy)
    return copies


def is_salted(message: Message) -> bool:
    """Return whether :func:`salted` made it: then the other side expects that of the answer."""
    return message.has_content() and SALT in entries(message.content)


def unsalted(message: Message) -> Message:
    """Return a message without what :func:`salted` has added, itself changed in place."""
    if is_salted(message):
        records = entries(message.content).items()
        own = {name: _without_salt(record) for name, record in records if name != SALT}
        message.content = filled(RecordDict, own)
    return message


def _with_salt(record: Any, salt: bytes) -> Any:
    if type(record) is ConfigRecord:
        return filled(ConfigRecord, {**entries(record), SALT: salt})
    if type(record) is MetricRecord:
        return filled(MetricRecord, {**entries(record), SALT: int.from_bytes(salt[:7], "big")})
    arrays = {
        name: Array(each.dtype, each.shape, each.stype, _with_comment(each.data, salt))
        for name, each in entries(record).items()
    }
    return filled(ArrayRecord, arrays)


def _without_salt(record: Any) -> Any:
    if type(record) is ArrayRecord or SALT not in entries(record):
        return record
    return filled(type(record), {k: v for k, v in entries(record).items() if k != SALT})


def _with_comment(data: bytes, salt: bytes) -> bytes:
    """Return an .npy file with a comment in its header, which is a line of Python."""
    start = _LENGTH.stop
    end = start + int.from_bytes(data[_LENGTH], "little")
    header = data[start:end].rstrip() + b" # " + salt.hex().encode()
    header += b" " * (-(start + len(header) + 1) % _ALIGNED) + b"\n"
    return data[: _LENGTH.start] + len(header).to_bytes(2, "little") + header + data[end:]
