"""Cohorts that are split if a test finds groups; every client is assigned to one (ours).

Derived from Auxo (:mod:`selectors.cohorts.auxo`): all clients start in one cohort, the updates that
they send anyway show which of them belong together, and cohorts are split. The differences:

- A cohort is split if its clients fall into groups (:mod:`selectors.cohorts.separation`), judged by
  several rounds at once and without the noise within clients.
- An assigned client stays in its cohort and does not explore. Clients without a cohort, and those
  that do not fit theirs, are asked for the loss of each cohort's model. If they may not be asked,
  or do not answer, they try one cohort after the other and stay in the best one.
- Until a client is assigned, it uses the mean of all models.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..diagnosis.skew import told_by_labels
from .evidence import Evidence
from .projection import unit_rows
from .rewards import decayed, instant_reward, known_centre
from .separation import FEWEST, Separation, separation
from .split import WITHIN, SplitRule
from .tree import ROOT, CohortTree, in_order

MEAN = "mean"  # in place of a cohort: the mean of all models
NOWHERE = ""

_SEEN = 0.8  # of the clients must have been seen before they are split
_ENOUGH = 64  # or this many
_TRIES = 3  # rounds in a cohort before its rewards say that a client does not fit
_UNSURE = 0.02  # losses closer than this share do not distinguish models
_BETTER = 0.9  # of its own cohort's loss: what another must have for a client to move
_ASK_AGAIN = 2  # rounds; doubled every time
_MOST_ASKED = 5  # times; then the best loss counts, however close
_KNOWN = 1_000_000  # clients that are remembered
_BY_ROUNDS = 0.25  # how far rounds tell groups apart that may be nothing but rounds
_BY_LABELS = 0.5  # how far labels tell groups apart that may be nothing but labels


@dataclass
class TestedLeaf:
    """The state of one leaf besides its model."""

    evidence: Evidence = field(default_factory=Evidence)
    round: int = 0
    streak: int = 0  # rounds in a row in which there were clear groups
    parts: int = 1  # how many


@dataclass
class Misfit:
    """A client without a cohort, or one that may be in the wrong one."""

    asked: int = 0  # how often it was asked
    again: int = 0  # the round from which on it may be asked again
    tried: dict[str, float] = field(default_factory=dict)  # rewards of the cohorts that it tried


@dataclass(frozen=True)
class SplitVerdict:
    """What one round of one leaf showed."""

    children: list[str]  # what the leaf was split into; empty if it was not
    # How clearly its clients fall into groups; none if it was not looked at
    groups: Separation | None
    reason: str  # why it was not split


class SplitTest:
    """The cohorts of one run.

    - ``parts``: most parts that a cohort is split into; 1 for never.
    - ``rule``: in which rounds a cohort may be split, in how many rounds in a row there must be
      clear groups, and how many participants per round each part must keep.
    - ``limit``: share of the variance between clients that may be within the groups.
    - ``rate``: weight of a new reward against those before.
    - ``asks``: whether clients that no cohort knows wait to be asked; else they try.

    >>> cohorts = SplitTest(rule=SplitRule(first_round=0, rounds=1, participants=1))
    >>> keys, rng = [str(number) for number in range(12)], np.random.default_rng(0)
    >>> for _ in range(2):
    ...     updates = np.eye(5)[np.arange(12) % 2] + 0.1 * rng.normal(size=(12, 5))
    ...     seen = cohorts.observe("0", keys, updates, population=12)
    ...     if seen.children:
    ...         break
    >>> seen.children, cohorts.place(["0", "1", "2", "newcomer"])
    (['0.0', '0.1'], ['0.0', '0.1', '0.0', 'mean'])
    """

    def __init__(
        self,
        parts: int = 8,
        rule: SplitRule | None = None,
        limit: float = WITHIN,
        rate: float = 0.2,
        asks: bool = True,
        seed: int = 0,
    ) -> None:
        if parts < 1 or not 0 <= limit <= 1:
            raise ValueError(f"parts, limit: expected from 1 and 0 to 1, got {parts} and {limit}")
        decayed(0.0, 0.0, rate)  # refuses what is not a share
        self.parts, self.rule, self.limit = parts, rule or SplitRule(), limit
        self.rate, self.asks, self.seed = rate, asks, seed
        self.tree = CohortTree()
        self._leaves = {ROOT: TestedLeaf()}
        self._homes: dict[str, str] = {}  # the leaf of each client, the one placed last at the end
        self._fits: dict[str, tuple[float, int]] = {}  # reward there, and from how many rounds
        self._misfits: dict[str, Misfit] = {}
        self._labels: dict[str, NDArray[np.float64]] = {}  # shifts of the output bias

    def leaves(self) -> list[str]:
        """Return the cohorts that train."""
        return self.tree.leaves()

    def home(self, key: str) -> str | None:
        """Return the leaf that a client is known to belong to."""
        return ROOT if ROOT in self._leaves else self._homes.get(key)

    def place(self, keys: Sequence[str], training: bool = False, order: int = 0) -> list[str]:
        """Return the cohort of each client.

        Of those that no cohort knows: to evaluate, :data:`MEAN`; to train, none while they wait to
        be asked, else the next one that they have not tried, in an order that varies.
        """
        return [self.home(key) or self._unknown(key, training, order) for key in keys]

    def _unknown(self, key: str, training: bool, order: int) -> str:
        if not training:
            return MEAN
        misfit = self._misfits.get(key, Misfit())
        if self.asks and not misfit.asked:
            return NOWHERE
        untried = [leaf for leaf in self.leaves() if leaf not in misfit.tried]
        rng = np.random.default_rng([self.seed, order, *key.encode()[-8:]])
        return untried[int(rng.integers(len(untried)))] if untried else self.leaves()[0]

    def to_ask(self, keys: Sequence[str], round: int, most: int) -> list[str]:
        """Return which clients to ask for the losses of all models: the unknown, then misfits."""
        if ROOT in self._leaves:
            return []
        due = [key for key in keys if round >= self._misfits.get(key, Misfit()).again]
        unknown = [key for key in due if key not in self._homes]
        doubtful = [key for key in due if key in self._homes and self._doubtful(key)]
        return (unknown + doubtful)[:most]

    def _doubtful(self, key: str) -> bool:
        reward, rounds = self._fits.get(key, (0.0, 0))
        return rounds >= _TRIES and reward < 0

    def told(self, asked: Sequence[str], losses: Mapping[str, ArrayLike], round: int) -> None:
        """Assign clients by the losses that they report, one per leaf; silent ones stay.

        An unknown client goes to the lowest loss if that is clearly lower than the next, or if it
        was asked often. A client that has a cohort leaves it only for a much lower loss.
        """
        for key in asked:
            misfit = self._misfits.setdefault(key, Misfit())
            misfit.asked += 1
            misfit.again = round + _ASK_AGAIN**misfit.asked
            values = np.asarray(losses.get(key, ()), dtype=np.float64)
            if values.size != len(self._leaves) or not np.isfinite(values).any():
                continue
            ordered = np.sort(np.where(np.isfinite(values), values, np.inf))
            best = self.leaves()[int(np.nanargmin(values))]
            own = self._homes.get(key)
            if own is None:
                sure = ordered[0] < (1 - _UNSURE) * ordered[1] or misfit.asked >= _MOST_ASKED
            else:
                sure = ordered[0] < _BETTER * values[self.leaves().index(own)]
            if sure and best != own:
                self._settle(key, best)
            elif own is not None:
                self._fits.pop(key, None)  # it is in the right place, though not in the middle
        while len(self._misfits) > _KNOWN:
            del self._misfits[next(iter(self._misfits))]

    def _settle(self, key: str, leaf: str) -> None:
        self._homes.pop(key, None)
        self._homes[key] = leaf
        self._fits.pop(key, None)
        if len(self._homes) > _KNOWN:
            forgotten = next(iter(self._homes))
            del self._homes[forgotten]
            self._fits.pop(forgotten, None)

    def observe(
        self,
        leaf: str,
        keys: Sequence[str],
        sketches: ArrayLike,
        population: int,
        round: int | None = None,
    ) -> SplitVerdict:
        """Process one round of a leaf, and split it if that is due.

        - ``keys``: the participants whose updates were aggregated.
        - ``sketches`` (one row per participant): of their updates, in any scale, by one projection.
        - ``population``: how many clients there are in all cohorts.
        - ``round``: the server's round, by which :meth:`observe_late` knows it; by default they are
          counted.
        """
        if leaf not in self._leaves:
            raise ValueError(f"leaf: expected one of {', '.join(self.leaves())}, got {leaf!r}")
        if len(set(keys)) != len(keys):
            raise ValueError(f"keys: expected no key twice, got {list(keys)}")
        if not keys:
            return SplitVerdict([], None, "nobody took part")
        points = self._directions(leaf, sketches, len(keys))
        mine = [self.home(key) == leaf for key in keys]
        if ROOT not in self._leaves:
            self._reward(leaf, keys, points, np.array(mine))
        members = [row for row, own in enumerate(mine) if own]
        this = self._leaves[leaf]
        this.round += 1
        this.evidence.add([keys[row] for row in members], points[members], round)
        return self._judged(leaf, len(keys), population)

    def hear_labels(self, keys: Sequence[str], shifts: Sequence[ArrayLike | None]) -> None:
        """Learn how clients moved the output layer's bias, which shows what labels they have.

        A cohort whose groups differ by that alone is not split from then on: one model can serve
        them.
        """
        shown = [(key, shift) for key, shift in zip(keys, shifts, strict=True) if shift is not None]
        ways = unit_rows(np.array([shift for _, shift in shown])) if shown else ()
        for (key, _), way in zip(shown, ways, strict=True):
            self._labels[key] = (self._labels.get(key, way) + way) / 2
        while len(self._labels) > _KNOWN:
            del self._labels[next(iter(self._labels))]

    def observe_late(self, leaf: str, key: str, sketch: ArrayLike, round: int) -> None:
        """Learn from the late update of a participant of an earlier round.

        It is compared with the members of the leaf that took part in that round, as far as they are
        remembered. That the leaf was not split meanwhile, and that the client was not seen in that
        round, is checked here. The next round of the leaf judges with it.
        """
        if leaf not in self._leaves:
            return
        point, evidence = self._directions(leaf, sketch, 1), self._leaves[leaf].evidence
        peers, points = evidence.of_round(round)
        if key in peers:
            return
        mine = self.home(key) == leaf
        if peers and ROOT not in self._leaves:
            members = np.array([True] * len(peers) + [mine])
            reward = _rewards(np.concatenate([points, point]), members)[-1]
            self._learn_fit(leaf, key, reward, mine)
        if mine:
            evidence.add([key], point, round)

    def _directions(self, leaf: str, sketches: ArrayLike, count: int) -> NDArray[np.float64]:
        """Return sketches as rows of length one, after a look at their dimension."""
        points = unit_rows(np.asarray(sketches, dtype=np.float64).reshape(count, -1))
        known = self._leaves[leaf].evidence.dimension
        if known and known != points.shape[1]:
            raise ValueError(f"sketches: expected dimension {known}, got {points.shape[1]}")
        return points

    def _reward(self, leaf: str, keys: Sequence[str], points: Any, members: Any) -> None:
        rewards = _rewards(points, members)
        for key, reward, member in zip(keys, rewards, members.tolist(), strict=True):
            self._learn_fit(leaf, key, reward, member)

    def _learn_fit(self, leaf: str, key: str, reward: float, member: bool) -> None:
        """Learn how well a client fits; who tried all cohorts stays with the best."""
        if member:
            before, rounds = self._fits.get(key, (reward, 0))
            self._fits[key] = (float(decayed(before, reward, self.rate)), rounds + 1)
            return
        tried = self._misfits.setdefault(key, Misfit()).tried
        tried[leaf] = reward
        leaves = self.leaves()
        if key not in self._homes and all(name in tried for name in leaves):
            self._settle(key, max(leaves, key=lambda name: tried[name]))

    def _judged(self, leaf: str, participants: int, population: int) -> SplitVerdict:
        this, leaves = self._leaves[leaf], len(self._leaves)
        homes = population if leaf == ROOT else list(self._homes.values()).count(leaf)
        wanted = min(_ENOUGH, _SEEN * homes)
        if self.parts < 2:
            return SplitVerdict([], None, "split-test.parts = 1")
        if this.evidence.clients < wanted:
            seen = f"{this.evidence.clients} clients seen, at least {wanted:.0f} are needed"
            return SplitVerdict([], None, seen)
        # All cohorts share the participants of a round.
        total = participants * leaves
        most = min(self.parts, int(total / self.rule.participants) - leaves + 1)
        if most < 2:
            few = f"too few participants per round ({total}) for more cohorts"
            return SplitVerdict([], None, f"{few} of {self.rule.participants}")
        found = self._leaves[leaf].evidence.differences()
        groups = separation(found, most, self.limit, self.seed)
        looks = 2 if groups.very_clear(self.limit) else 1  # one look is enough at the clearest
        before = this.streak if groups.parts == this.parts else 0
        this.streak = before + looks if groups.clear(self.limit) else 0
        this.parts = groups.parts
        reason = self._against(this, groups) or self._by_labels(found.keys, groups)
        if not reason and found.told_by_rounds(groups.labels) > _BY_ROUNDS:
            reason = "the groups trained in different rounds, which may be all that differs"
        if reason:
            return SplitVerdict([], groups, reason)
        children = self.tree.split(leaf, groups.parts)
        stay = dict(zip(found.keys, groups.labels.tolist(), strict=True))
        gone = [key for key, home in self._homes.items() if home == leaf]
        for key in gone:
            del self._homes[key]
        for key, label in stay.items():
            self._settle(key, children[label])
        del self._leaves[leaf]
        self._leaves |= {child: TestedLeaf(round=this.round) for child in children}
        self._misfits.clear()  # what they tried is gone
        return SplitVerdict(children, groups, "")

    def _against(self, leaf: TestedLeaf, groups: Separation) -> str:
        """Return the reason not to split; None if a split is due."""
        if groups.parts < 2:
            seen = leaf.evidence.clients
            few = f"{seen} clients have trained, at least {FEWEST} are needed to find groups"
            return few if seen < FEWEST else "no two groups of at least two clients"
        share = f"{groups.within:.1%} of the variance is within {groups.parts} parts"
        if groups.within > self.limit:
            return f"no distinct groups ({share}, at most {self.limit:.0%} is allowed)"
        if groups.drowned:
            return "updates vary too much between rounds to show groups; train more clients a round"
        if not groups.clear(self.limit):
            chance = f"chance leaves {groups.chance:.1%}, and less than half of that is needed"
            return f"no distinct groups ({share}; {chance})"
        if leaf.streak < self.rule.rounds:
            return f"clear groups for {leaf.streak} of {self.rule.rounds} rounds"
        if leaf.round < self.rule.first_round:
            return f"round {leaf.round} is before round {self.rule.first_round}"
        return ""

    def _by_labels(self, keys: Sequence[str], groups: Separation) -> str:
        """Return a reason not to split if labels alone explain the groups."""
        rows = [row for row, key in enumerate(keys) if key in self._labels]
        if not rows:
            return ""
        shifts = [self._labels[keys[row]] for row in rows]
        told = told_by_labels(shifts, groups.labels[rows])
        alike = f"labels alone tell {groups.parts} parts apart: one model can serve them"
        return alike if told >= _BY_LABELS else ""

    def state_dict(self) -> dict[str, Any]:
        """Return the tree, the state of its leaves, and the cohorts of clients."""
        leaves = {
            name: {
                "round": leaf.round,
                "streak": leaf.streak,
                "parts": leaf.parts,
                "evidence": leaf.evidence.state_dict(),
            }
            for name, leaf in self._leaves.items()
        }
        fits = {key: [reward, rounds] for key, (reward, rounds) in self._fits.items()}
        misfits = {key: vars(misfit) for key, misfit in self._misfits.items()}
        state = {"tree": self.tree.state_dict(), "leaves": leaves, "homes": dict(self._homes)}
        labels = {"keys": list(self._labels), "shifts": np.array(list(self._labels.values()))}
        return state | {"fits": fits, "misfits": misfits, "labels": labels}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore what :meth:`state_dict` returned; refused unless its parts fit together."""
        tree = CohortTree.of_leaves(state["tree"]["leaves"])
        strange = set(state["homes"].values()) - set(tree.leaves())
        if set(state["leaves"]) != set(tree.leaves()) or strange:
            raise ValueError(
                f"state: a tree with the leaves {tree.leaves()}, but what is known is of "
                f"{in_order(state['leaves'])} and of clients in {sorted(strange)}"
            )
        self.tree, self._leaves = tree, {}
        for name in tree.leaves():
            kept = state["leaves"][name]
            leaf = TestedLeaf(
                round=int(kept["round"]), streak=int(kept["streak"]), parts=int(kept["parts"])
            )
            leaf.evidence.load_state_dict(kept["evidence"])
            self._leaves[name] = leaf
        self._homes = {str(key): str(leaf) for key, leaf in state["homes"].items()}
        self._fits = {str(k): (float(r), int(n)) for k, (r, n) in state["fits"].items()}
        labels = state["labels"]
        self._labels = dict(zip(map(str, labels["keys"]), np.array(labels["shifts"]), strict=True))
        self._misfits = {
            str(key): Misfit(
                int(kept["asked"]),
                int(kept["again"]),
                {str(leaf): float(reward) for leaf, reward in kept["tried"].items()},
            )
            for key, kept in state["misfits"].items()
        }


def _rewards(points: NDArray[np.float64], members: NDArray[np.bool_]) -> list[float]:
    """Return the reward of each row, by its distance to the centre of the members."""
    centre = known_centre(points, members)
    return [float(reward) for reward in instant_reward(np.linalg.norm(points - centre, axis=1))]
