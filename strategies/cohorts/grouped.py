"""Rules that ask clients for updates and group them: FlexCFL at first, FL+HC after some rounds."""

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

import numpy as np
from flwr.app import ArrayRecord
from numpy.typing import NDArray

from ...core.config import RunConfig
from ...core.methods.cohort import CohortSettings
from ...core.wire.arrays import from_record, to_record
from ...core.wire.keys import ARRAYS, ASK_UPDATE, STEPS
from ...core.wire.replies import Row
from ...core.wire.schemas import BadReply
from ...selectors.cohorts.fl_hc import FlHc
from ...selectors.cohorts.flexcfl import FlexCfl, pretrained
from .base import ONLY, CoreRule, Regrouping, Scene, by_key
from .update_sketches import Signal

Floats = NDArray[np.float64]
G = TypeVar("G", FlexCfl, FlHc)

_PRETRAINED = 50  # local steps of the updates that FlexCFL groups clients by
_MERGED = 0.5  # cosine distance up to which FL+HC merges clusters


class GroupedRule(CoreRule[G]):
    """Ask for an update from a common model, of some local steps; 0 for as many as in a round."""

    def __init__(self, config: RunConfig, core: G, steps: int) -> None:
        self.config, self.core, self.steps = config, core, steps
        self.signal = Signal(seed=config.seed)
        self.model: ArrayRecord | None = None  # that updates start from

    def settled(self, placed: Mapping[str, str]) -> dict[str, str]:
        """Return each client's group; the largest for one that is not known."""
        return by_key(self.core.members.of(list(placed)))

    def updates(self, scene: Scene, keys: Sequence[str]) -> dict[str, Floats]:
        """Return sketches of the updates of those who answer."""
        assert self.model is not None
        model, before = self.model, self.signal.sketch(from_record(self.model))

        like = from_record(model)

        def read(key: str, row: Row) -> Floats:
            update = self.signal.sketch(row.arrays(ARRAYS, like)) - before
            if not np.isfinite(update @ update):
                raise BadReply("an update that is too long to compare")
            return update

        return scene.ask(keys, ASK_UPDATE, {ARRAYS: model}, {STEPS: self.steps}, read)

    def state_dict(self) -> dict[str, Any]:
        """Return the groups and the model that newcomers start from."""
        model = None if self.model is None else from_record(self.model)
        return {"core": super().state_dict(), "model": model}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore what :meth:`state_dict` returned."""
        super().load_state_dict(state["core"])
        self.model = None if state["model"] is None else to_record(state["model"])


class FlexCflRule(GroupedRule[FlexCfl]):
    """FlexCFL: groups from the start, by some clients' pretraining; newcomers pretrain and join."""

    def __init__(self, config: RunConfig) -> None:
        super().__init__(config, FlexCfl(config[CohortSettings].number), _PRETRAINED)
        self.rng = np.random.default_rng([config.seed, 11])

    def regroup(self, scene: Scene) -> Regrouping | None:
        """Group some clients before the first round; later, let newcomers join."""
        if self.model is not None:
            new = [key for key in scene.keys if self.core.members.leaf_of(key) is None]
            for key, update in self.updates(scene, new).items() if new else ():
                self.core.join(key, update)
            return None
        count = pretrained(self.config[CohortSettings].number, len(scene.keys))
        chosen = np.sort(self.rng.choice(len(scene.keys), count, replace=False))
        self.model = scene.models[ONLY]
        updates = self.updates(scene, [scene.keys[i] for i in chosen])
        if not updates:
            self.model = None  # nobody answered: next round, again
            return None
        leaves = self.core.start(list(updates), np.array(list(updates.values())))
        self.regroup(scene)  # those who were not asked join
        return {leaf: {ONLY: 1.0} for leaf in leaves} if len(leaves) > 1 else None


class FlHcRule(GroupedRule[FlHc]):
    """FL+HC: after some joint rounds, clusters of everybody's update, once."""

    def __init__(self, config: RunConfig) -> None:
        joint = config[CohortSettings].joint_rounds_of(config.num_server_rounds)
        super().__init__(config, FlHc(joint, _MERGED, metric="cosine"), steps=0)

    def regroup(self, scene: Scene) -> Regrouping | None:
        """Cluster all clients that are there when it is time."""
        if not self.core.due(scene.round):
            return None
        self.model = scene.models[ONLY]
        updates = self.updates(scene, scene.keys)
        if not updates:
            return None
        leaves = self.core.cluster(list(updates), np.array(list(updates.values())))
        return {leaf: {ONLY: 1.0} for leaf in leaves} if len(leaves) > 1 else None
