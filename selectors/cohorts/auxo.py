"""Auxo: cohorts found during training, from the updates that clients send anyway (algorithm 1).

Liu, Lai, Dai, Akella, Madhyastha, Chowdhury: *Auxo: Efficient Federated Learning via Scalable
Client Clustering*; :mod:`selectors.cohorts.split_testing` is derived from it. This module is the
server's part, without models and messages. :meth:`Auxo.match` assigns clients to leaves, and
:meth:`Auxo.observe` evaluates a round of one leaf: rewards, clusters, and whether to split it. Both
use the clients' requests; the server stores only the last requests and undelivered feedback.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..checks import at_least
from .affinity import Affinity, Feedback
from .exploration import exploration_rate
from .lies import LieCounter, wrong_cluster, wrong_cohort
from .matching import Claims, choose_leaves, grouped
from .online import OnlineClusters, distances_to
from .projection import unit_rows
from .rewards import decayed, instant_reward, known_centre
from .split import Gain, SplitRule, SplitWatch
from .tree import CohortTree

Floats = NDArray[np.float64]


@dataclass
class AuxoLeaf:
    """The server's state of one leaf besides its model."""

    clusters: OnlineClusters
    watch: SplitWatch
    round: int = 0


@dataclass
class LeafRound:
    """One round of one leaf, while it is looked at."""

    leaf: str  # its name, and its place among the leaves
    column: int
    points: Floats  # directions of their updates (one row per participant)
    claims: Claims  # what they said before
    # Who is known to belong to the leaf, and does not just try it; everyone while it is alone
    members: NDArray[np.bool_]
    rewards: NDArray[np.float32]  # instant ones
    lengths: NDArray[np.float32]
    labels: NDArray[np.intp] = field(init=False)  # clusters within the leaf; -1 for none
    gain: Gain = field(init=False)  # what a split along them would gain

    def __post_init__(self) -> None:
        self.labels = np.full(len(self.points), -1, dtype=np.intp)
        self.gain = Gain(0.0, 0.0, 0, 0.0)


@dataclass(frozen=True)
class AuxoObserved:
    """What one round of one leaf showed."""

    feedback: dict[str, Feedback]  # for each participant, to be sent with its next message
    children: list[str]  # what the leaf was split into; empty if it was not
    gain: Gain  # heterogeneity before and after a split along the clusters
    reason: str = ""  # that it was not split
    liars: list[str] = field(default_factory=list)  # whose requests contradict their updates
    barred: list[str] = field(default_factory=list)  # who came onto the blacklist by that
    strange: list[str] = field(default_factory=list)  # who named cohorts that never existed


class Auxo:
    """The cohorts of one run.

    - ``parts``: a cohort is split into at most this many parts (K); 1 for never.
    - ``rule``: when a cohort is split.
    - ``first_cluster_round``: round of a cohort from which on clusters are looked for.
    - ``exploration``, ``decay``: of the share of clients that try another cohort;
      :func:`exploration_rate`.
    - ``rate``: weight of a new reward against those before.
    - ``retry``: see :class:`OnlineClusters`.
    - ``margin``, ``strikes``: when a request is a lie, and how many are too many; see
      :mod:`selectors.cohorts.lies`.
    - ``capacity``: number of clients whose place is remembered, and for whom feedback is kept.

    >>> auxo = Auxo(parts=2, rule=SplitRule(first_round=0, rounds=1, participants=2),
    ...             first_cluster_round=0)
    >>> auxo.match(["a", "b", "c", "d"], [None] * 4)
    {'0': ['a', 'b', 'c', 'd']}
    >>> sketches = [[1.0, 0.1], [0.1, 1.0], [1.0, 0.0], [0.0, 1.0]]
    >>> seen = auxo.observe("0", ["a", "b", "c", "d"], sketches, [None] * 4)
    >>> seen.children, [seen.feedback[key].index for key in "abcd"]
    (['0.0', '0.1'], [0, 1, 0, 1])
    >>> auxo.members(["a", "b", "c", "d"])
    {'0.0': ['a', 'c'], '0.1': ['b', 'd']}
    """

    def __init__(
        self,
        parts: int = 4,
        rule: SplitRule | None = None,
        first_cluster_round: int = 5,
        exploration: float = 0.3,
        decay: float = 0.99,
        rate: float = 0.2,
        retry: int = 20,
        margin: float = 0.25,
        strikes: int = 3,
        capacity: int = 1_000_000,
        seed: int = 0,
    ) -> None:
        at_least(1, parts=parts, retry=retry)
        at_least(0, first_cluster_round=first_cluster_round, margin=margin)
        exploration_rate(0, exploration, decay)  # refuses what is not a share
        decayed(0.0, 0.0, rate)
        self.parts, self.rule, self.retry = parts, rule or SplitRule(), retry
        self.first_cluster_round, self.rate, self.margin = first_cluster_round, rate, margin
        self.exploration, self.decay, self.seed = exploration, decay, seed
        self.tree = CohortTree()
        self.lies = LieCounter(strikes)
        self._leaves = {leaf: self._new_leaf() for leaf in self.tree.leaves()}
        self.capacity = capacity
        self._where: dict[str, str] = {}  # the leaf that each client asked for last (S in line 4)
        self._posts: dict[str, Feedback] = {}  # on its way to each client
        self._rng = np.random.default_rng(seed)
        self._serial = 0

    def _new_leaf(self, round: int = 0) -> AuxoLeaf:
        clusters = OnlineClusters(self.parts, self.rule, self.retry)
        return AuxoLeaf(clusters, SplitWatch(self.rule), round)

    def leaves(self) -> list[str]:
        """Return the cohorts that train."""
        return self.tree.leaves()

    def round_of(self, leaf: str) -> int:
        """Return how many rounds a leaf has had; it counts on from its parent's."""
        return self._leaf(leaf).round

    def _leaf(self, leaf: str) -> AuxoLeaf:
        if leaf not in self._leaves:
            raise ValueError(f"leaf: expected one of {', '.join(self.leaves())}, got {leaf!r}")
        return self._leaves[leaf]

    def match(
        self, keys: Sequence[str], requests: Sequence[Affinity | None]
    ) -> dict[str, list[str]]:
        """Return which clients train with which leaf by their requests (lines 27 to 33).

        Now and then that is another than the best. Clients on the blacklist are left out.
        """
        self._delivered(keys, requests)
        leaves, initial, decay = self.leaves(), self.exploration, self.decay
        rates = [exploration_rate(self._leaves[leaf].round, initial, decay) for leaf in leaves]
        rewards = Claims.of(requests, self.tree).rewards
        chosen = choose_leaves(rewards, rates, self._rng)
        best = np.argmax(rewards, axis=1)
        for row, key in enumerate(keys):
            tied = rewards[row, chosen[row]] == rewards[row, best[row]]
            self._put(self._where, key, leaves[chosen[row] if tied else best[row]])
        allowed = set(self.lies.allowed(keys))
        groups = grouped(keys, chosen, leaves)
        return {leaf: [key for key in own if key in allowed] for leaf, own in groups.items()}

    def members(self, keys: Sequence[str]) -> dict[str, list[str]]:
        """Return the leaf that each client asked for last; a seeded one for all others."""
        leaves = self.leaves()
        drawn = np.random.default_rng(self.seed).integers(len(leaves), size=len(keys))
        groups: dict[str, list[str]] = {leaf: [] for leaf in leaves}
        for key, other in zip(keys, drawn.tolist(), strict=True):
            groups[self._where.get(key, leaves[other])].append(key)
        return groups

    def feedback_for(self, key: str) -> Feedback | None:
        """Return what to send to a client with its next message."""
        return self._posts.get(key)

    def _delivered(self, keys: Sequence[str], requests: Sequence[Affinity | None]) -> None:
        for key, request in zip(keys, requests, strict=True):
            if request and key in self._posts and self._posts[key].serial == request.serial:
                del self._posts[key]

    def _put(self, kept: dict[str, Any], key: str, value: Any) -> None:
        """Keep something of a client; of too many, the one not heard of for longest goes."""
        kept.pop(key, None)
        kept[key] = value
        if len(kept) > self.capacity:
            del kept[next(iter(kept))]

    def observe(
        self,
        leaf: str,
        keys: Sequence[str],
        sketches: ArrayLike,
        requests: Sequence[Affinity | None],
    ) -> AuxoObserved:
        """Process one round of a leaf, and split it if that is due.

        - ``keys``: the participants whose updates were aggregated.
        - ``sketches`` (one row per participant): of their updates, in any scale, by one projection.
        - ``requests``: the records that they sent with their updates; none if a client sent
          nothing, and then it has no preference.
        """
        self._leaf(leaf)
        if not keys:  # nothing was seen: no round
            return AuxoObserved({}, [], Gain(0.0, 0.0, 0, 0.0), "nobody took part")
        updates = self._checked(keys, sketches, requests)
        self._delivered(keys, requests)
        pairs = zip(keys, requests, strict=True)
        strange = [key for key, request in pairs if request and request.strange(self.tree)]
        this = self._round(leaf, Claims.of(requests, self.tree), updates)
        self._cluster(this)
        lied = self._lied(this)
        indices = self._leaves[leaf].clusters.indices_of(this.labels)
        found = [
            Feedback(leaf, float(reward), int(index), self._serial)
            for reward, index in zip(this.rewards, indices, strict=True)
        ]
        for key, one in zip(keys, found, strict=True):
            self._put(self._posts, key, one)
        barred = self.lies.count(keys, lied, self._leaves[leaf].round)
        liars = [key for key, lie in zip(keys, lied.tolist(), strict=True) if lie]
        watch = self._leaves[leaf].watch
        children = self._split_if_due(this)
        feedback = dict(zip(keys, found, strict=True))
        if children:
            self._follow(leaf, feedback)
        return AuxoObserved(feedback, children, this.gain, watch.reason, liars, barred, strange)

    def _checked(
        self, keys: Sequence[str], sketches: ArrayLike, requests: Sequence[Affinity | None]
    ) -> Floats:
        """Return the sketches as a matrix, after a look at the arguments."""
        if len(requests) != len(keys) or len(set(keys)) != len(keys):
            raise ValueError(f"requests: expected one per key, {len(keys)}, and no key twice")
        rows = np.asarray(sketches, dtype=np.float64).reshape(len(keys), -1)
        if not np.all(np.isfinite(rows)):
            raise ValueError("sketches: expected finite numbers")
        known = {leaf.clusters.centroids.shape[1] for leaf in self._leaves.values()} - {0}
        if known - {rows.shape[1]}:
            raise ValueError(f"sketches: expected dimension {known}, got {rows.shape[1]}")
        return rows

    def _follow(self, leaf: str, feedback: dict[str, Feedback]) -> None:
        """Put participants into their part of a leaf that was split; the others will ask."""
        self._where = {key: name for key, name in self._where.items() if name != leaf}
        for key, one in feedback.items():
            if f"{leaf}.{one.index}" in self._leaves:
                self._put(self._where, key, f"{leaf}.{one.index}")

    def _round(self, leaf: str, claims: Claims, updates: Floats) -> LeafRound:
        """Count a round and return it, with who belongs to the leaf and the rewards."""
        self._leaves[leaf].round += 1
        self._serial += 1
        alone, column = len(self._leaves) == 1, self.leaves().index(leaf)
        fits = claims.known[:, column] & (claims.rewards[:, column] >= 0)
        members = fits | alone
        points = unit_rows(updates)
        rewards = np.full(len(updates), np.nan, dtype=np.float32)
        lengths = rewards.copy()
        if not alone:  # line 23; by direction, as clusters are: a long update is no outlier
            rewards[:] = _rewards_of(points, members)
            lengths[:] = _rewards_of(updates, members)
        return LeafRound(leaf, column, points, claims, members, rewards, lengths)

    def _cluster(self, this: LeafRound) -> None:
        """Find the clusters of the members; of the others none, and none in the first rounds.

        Clients that just try the leaf would look like a cluster of their own.
        """
        leaf, members = self._leaves[this.leaf], this.members
        if leaf.round >= self.first_cluster_round:
            indices = this.claims.indices[members, this.column]
            this.labels[members], this.gain = leaf.clusters.step(this.points[members], indices)

    def _lied(self, this: LeafRound) -> NDArray[np.bool_]:
        claims, column, clusters = this.claims, this.column, self._leaves[this.leaf].clusters
        known, rewards = claims.known[:, column], claims.rewards[:, column]
        # By lengths: where a cohort has converged, honest updates are short and point anywhere.
        lied = wrong_cohort(this.lengths, rewards, known, self.margin)
        if self.rule.gains(this.gain):  # else the clusters mean little
            claimed = clusters.labels_of(claims.indices[:, column])
            distances = distances_to(this.points, clusters.centroids)
            lied |= wrong_cluster(distances, claimed, self.margin)
        return np.asarray(lied & np.any(this.points != 0, axis=1))

    def _split_if_due(self, this: LeafRound) -> list[str]:
        leaf, parts = self._leaves[this.leaf], this.gain.parts
        leaves = len(self._leaves)
        before = int(np.count_nonzero(this.members))
        left = before * leaves / (leaves + max(parts - 1, 0))
        if not leaf.watch.due(leaf.round, this.gain, left, before):
            return []
        children = self.tree.split(this.leaf, parts, leaf.clusters.first)
        del self._leaves[this.leaf]
        self._leaves |= {child: self._new_leaf(leaf.round) for child in children}
        return children

    def state_dict(self) -> dict[str, Any]:
        """Return the tree, the state of its leaves and clients, and the generator."""
        leaves = {
            name: {
                "round": leaf.round,
                "clusters": leaf.clusters.state_dict(),
                "watch": leaf.watch.state_dict(),
            }
            for name, leaf in self._leaves.items()
        }
        state = {"tree": self.tree.state_dict(), "leaves": leaves, "serial": self._serial}
        posts = {key: dict(vars(one)) for key, one in self._posts.items()}
        state |= {"where": dict(self._where), "posts": posts, "lies": self.lies.state_dict()}
        return state | {"rng": self._rng.bit_generator.state}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore what :meth:`state_dict` returned; refused unless its parts fit together."""
        tree = CohortTree.of_leaves(state["tree"]["leaves"])
        known, asked = sorted(state["leaves"]), {*state["where"].values()}
        if known != sorted(tree.leaves()) or asked - set(known):
            raise ValueError(
                f"state: a tree with the leaves {tree.leaves()}, but what is known is of "
                f"{known}, and clients are in {sorted(asked)}"
            )
        self.tree, self._serial = tree, int(state["serial"])
        self._leaves = {
            name: self._new_leaf(int(s["round"])) for name, s in state["leaves"].items()
        }
        for name, leaf in self._leaves.items():
            leaf.clusters.load_state_dict(state["leaves"][name]["clusters"])
            leaf.watch.load_state_dict(state["leaves"][name]["watch"])
        self._where = dict(state["where"])
        self._posts = {key: Feedback(**one) for key, one in state["posts"].items()}
        self.lies.load_state_dict(state["lies"])
        self._rng.bit_generator.state = state["rng"]


def _rewards_of(points: Floats, members: NDArray[np.bool_]) -> Floats:
    """Return the reward of each row by its distance to the centre of the members."""
    return instant_reward(np.linalg.norm(points - known_centre(points, members), axis=1))
