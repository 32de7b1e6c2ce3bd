"""Messages without the model, or with only what has changed in it, for clients that hold one.

Layers know nothing of this: what they remember having sent is whole. A client that has lost the
model says so, and is then sent the whole message.
"""

from typing import Any

from flwr.app import ArrayRecord, ConfigRecord

from ..core.wire.arrays import from_record, record_bytes
from ..core.wire.changes import BASE, CHANGE, TAG, encode_shortest, tag_of
from ..core.wire.keys import ARRAYS, CONFIG
from ..core.wire.records import entries, filled
from ..core.wire.requests import Requests
from ..strategies.federation.federation import Federation
from ..strategies.federation.held_models import HeldModels

BRING_A_MODEL = ("train", "evaluate")  # kinds of messages
_WORTH_IT = 0.9  # share of the model's bytes that a change may have


class ShortForm:
    """What to send in place of requests, and what to those that lack what it builds on."""

    def __init__(self, requests: Requests, federation: Federation) -> None:
        self.short = self.whole = requests  # without models that clients hold, and with all
        self.spared: dict[int, int] = {}  # bytes that a node is not sent, if its message is short
        self.tags = [""] * len(requests)  # what clients call models that they keep, else empty
        held, kind = federation.held, requests.kind
        kept = held.every_message and kind in BRING_A_MODEL
        if kept or (kind == "train" and held.anybody()):
            self._shorten(requests, held)

    def _shorten(self, requests: Requests, held: HeldModels) -> None:
        forms = _Forms(held)
        models, configs = list(requests.column(ARRAYS)), list(requests.column(CONFIG))
        short_models, short_configs = list(models), list(configs)
        for row, node in enumerate(requests.nodes):
            model, config, base = models[row], configs[row], held.of(node)
            if model is None or config is None or not (base or held.every_message):
                continue
            tag, said = forms.tag(model), forms.in_place_of(model, base)
            if held.every_message:
                configs[row] = short_configs[row] = forms.config(config, {TAG: tag})
                self.tags[row] = tag
            if said is not None:
                short_models[row], short_configs[row] = None, forms.config(config, said)
                self.spared[node] = record_bytes(model) - sum(map(len, said.get(CHANGE, ())))
        forms.keep_models()
        everyone = range(len(requests))
        self.short, self.whole = requests.select(everyone), requests.select(everyone)
        self.whole.put_column(CONFIG, configs)
        self.short.put_column(CONFIG, short_configs)
        self.short.put_column(ARRAYS, short_models)

    def whole_for(self, nodes: set[int]) -> Requests:
        """Return the whole messages to some nodes."""
        rows = [row for row, node in enumerate(self.whole.nodes) if node in nodes]
        return self.whole.select(rows)


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
