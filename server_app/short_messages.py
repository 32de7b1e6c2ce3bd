"""Messages without the model, or with only what has changed in it, for clients that hold one.

Layers know nothing of this: what they remember having sent is whole. A client that has lost the
model says so, and is then sent the whole message.
"""

from typing import Any

from flwr.app import ArrayRecord, ConfigRecord, Message, RecordDict

from ..core.wire.arrays import from_record
from ..core.wire.broadcast import Messages, kind_of
from ..core.wire.changes import BASE, CHANGE, TAG, encode_shortest, tag_of
from ..core.wire.keys import ARRAYS, CONFIG
from ..core.wire.records import entries, filled, node_of, record_at
from ..core.wire.sizes import record_bytes
from ..strategies.federation.federation import Federation
from ..strategies.federation.held_models import HeldModels

BRING_A_MODEL = ("train", "evaluate")  # kinds of messages
_WORTH_IT = 0.9  # share of the model's bytes that a change may have


def in_short(
    messages: Messages, federation: Federation
) -> tuple[Messages, dict[int, Message], dict[int, int]]:
    """Return what to send, and for those that are sent less: the whole message, the bytes spared.

    Where clients are to keep every model, messages say what it is called.
    """
    held, kind = federation.held, kind_of(messages)
    kept = held.every_message and kind in BRING_A_MODEL
    if not kept and not (kind == "train" and held.anybody()):
        return messages, {}, {}
    forms, to_send = _Forms(held), []
    whole: dict[int, Message] = {}
    spared: dict[int, int] = {}
    for message in messages:
        node = node_of(message)
        model = record_at(message.content, ARRAYS, ArrayRecord)
        config = record_at(message.content, CONFIG, ConfigRecord)
        base = held.of(node)
        if model is None or config is None or not (base or held.every_message):
            to_send.append(message)
            continue
        tag = forms.tag(model)
        said = forms.in_place_of(model, base)
        if held.every_message:
            message = _with_config(message, forms.config(config, {TAG: tag}), model)
            held.expect(node, tag)
        if said is None:
            to_send.append(message)
            continue
        short = forms.config(config, said)
        to_send.append(_with_config(message, short, None))
        whole[node] = message
        spared[node] = record_bytes(model) - sum(map(len, said.get(CHANGE, ())))
    forms.keep_models()
    return to_send, whole, spared


class _Forms:
    """What the messages of one sending say of their models, each found once."""

    def __init__(self, held: HeldModels) -> None:
        self._held = held
        self._models: dict[int, tuple[str, ArrayRecord]] = {}  # most messages share a record
        self._said: dict[tuple[str, str], dict[str, Any] | None] = {}
        self._configs: dict[tuple[int, str, str], ConfigRecord] = {}

    def tag(self, model: ArrayRecord) -> str:
        """Return what a model is called."""
        if id(model) not in self._models:
            self._models[id(model)] = tag_of(from_record(model)), model
        return self._models[id(model)][0]

    def in_place_of(self, model: ArrayRecord, base: str) -> dict[str, Any] | None:
        """Return what a client that holds another model is told; None if it must be sent this."""
        tag = self.tag(model)
        if base == tag:
            return {TAG: tag}
        if base not in self._held.models:
            return None
        if (base, tag) not in self._said:
            change = encode_shortest(self._held.models[base], from_record(model))
            short = change and sum(map(len, change)) <= _WORTH_IT * record_bytes(model)
            self._said[base, tag] = {TAG: tag, BASE: base, CHANGE: change} if short else None
        return self._said[base, tag]

    def config(self, config: ConfigRecord, said: dict[str, Any]) -> ConfigRecord:
        """Return a config that also says this; the same one for all messages that share it."""
        form = id(config), said[TAG], said.get(BASE, "")
        if form not in self._configs:
            self._configs[form] = filled(ConfigRecord, {**entries(config), **said})
        return self._configs[form]

    def keep_models(self) -> None:
        """Keep the models for later changes, if clients keep them too."""
        if self._held.every_message:
            for tag, model in self._models.values():
                self._held.keep(tag, from_record(model))


def _with_config(message: Message, config: ConfigRecord, model: ArrayRecord | None) -> Message:
    """Return another message to the same node, with this config, and this model or none."""
    content = {name: r for name, r in entries(message.content).items() if name != ARRAYS}
    content |= {CONFIG: config} | ({} if model is None else {ARRAYS: model})
    return Message(
        filled(RecordDict, content),
        dst_node_id=node_of(message),
        message_type=message.metadata.message_type,
        group_id=message.metadata.group_id,
    )
