"""The tree of cohorts, whose leaves train (Auxo, sections 4.2 and 4.3).

Liu, Lai, Dai, Akella, Madhyastha, Chowdhury: *Auxo: Efficient Federated Learning via Scalable
Client Clustering*. A cohort is named by its path: ``"0"`` is where everyone starts, ``"0.1"`` a
child of it, ``"0.1.0"`` a child of that. Numbers as in algorithm 1 (``m + k``) would collide.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import takewhile
from typing import Any

import numpy as np
from numpy.typing import NDArray

ROOT = "0"


def parent_of(cohort: str) -> str | None:
    """Return the path one level up, or nothing for a path of one number."""
    above, dot, _ = cohort.rpartition(".")
    return above if dot else None


def in_order(cohorts: Iterable[str]) -> list[str]:
    """Return paths in the order of their numbers, a parent before its children."""
    return sorted(cohorts, key=lambda cohort: [int(number) for number in cohort.split(".")])


class CohortTree:
    """All cohorts that ever were; those that were split are inner nodes.

    >>> tree = CohortTree()
    >>> tree.split("0", 2)
    ['0.0', '0.1']
    >>> tree.split("0.1", 3)
    ['0.1.0', '0.1.1', '0.1.2']
    >>> tree.leaves()
    ['0.0', '0.1.0', '0.1.1', '0.1.2']
    """

    def __init__(self) -> None:
        self._children: dict[str, list[str]] = {ROOT: []}  # in the order of the paths

    @classmethod
    def of_leaves(cls, leaves: Iterable[str]) -> "CohortTree":
        """Return the tree that has these leaves."""
        leaves, tree = list(leaves), cls()
        for leaf in leaves:
            if not _is_path(leaf):
                raise ValueError(f"leaves: expected paths below '{ROOT}', got {leaf!r}")
        cohorts = {above for leaf in leaves for above in [leaf, *_ancestors(leaf)]}
        tree._children = {cohort: [] for cohort in in_order(cohorts)}
        for cohort in tree._children:
            if cohort != ROOT:
                tree._children[cohort.rpartition(".")[0]].append(cohort)
        only_child = any(len(below) == 1 for below in tree._children.values())
        if only_child or not leaves or sorted(leaves) != sorted(tree.leaves()):
            raise ValueError(f"leaves: expected all of a tree and each once, got {leaves}")
        return tree

    def __contains__(self, cohort: object) -> bool:
        return cohort in self._children

    def leaves(self) -> list[str]:
        """Return the cohorts that train, in the order of their paths."""
        return [cohort for cohort, below in self._children.items() if not below]

    def cohorts(self) -> list[str]:
        """Return all cohorts that ever were, a parent before its children."""
        return list(self._children)

    def children(self, cohort: str) -> list[str]:
        """Return the cohorts that one was split into, none for a leaf."""
        return list(self._children[self._checked(cohort)])

    def split(self, leaf: str, parts: int, first: int = 0) -> list[str]:
        """Replace a leaf by its children, numbered from ``first`` on, and return them."""
        if self._children[self._checked(leaf)]:
            raise ValueError(f"leaf: cohort {leaf!r} was split before into {self._children[leaf]}")
        if parts < 2 or first < 0:
            raise ValueError(f"parts, first: expected at least 2 and 0, got {parts} and {first}")
        children = [f"{leaf}.{number}" for number in range(first, first + parts)]
        below = self._children | {leaf: children} | {child: [] for child in children}
        self._children = {cohort: below[cohort] for cohort in in_order(below)}
        return list(children)

    def distance(self, explored: str, other: str) -> int:
        """Return how far above ``explored`` the lowest cohort is that holds both (section 4.3)."""
        return path_distance(self._checked(explored), self._checked(other))

    def nearest(self, cohort: str) -> str:
        """Return the cohort if there is one of that name, else the lowest there is above it.

        A client may know more than a server that went back to an earlier state, or make names up.

        >>> tree = CohortTree.of_leaves(["0.0", "0.1"])
        >>> tree.nearest("0.1.0"), tree.nearest("0.7"), tree.nearest("nonsense")
        ('0.1', '0', '0')
        """
        return next((name for name in [cohort, *_ancestors(cohort)] if name in self), ROOT)

    def _checked(self, cohort: str) -> str:
        if cohort not in self._children:
            raise ValueError(f"cohort {cohort!r} never existed; leaves: {', '.join(self.leaves())}")
        return cohort

    def state_dict(self) -> dict[str, Any]:
        """Return the leaves, which define the tree."""
        return {"leaves": self.leaves()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore what :meth:`state_dict` returned."""
        self._children = CohortTree.of_leaves(state["leaves"])._children


class Membership:
    """Who is in which leaf, for methods that assign clients once and for all.

    >>> members = Membership()
    >>> members.split("0", [["a", "b"], ["c"]])
    ['0.0', '0.1']
    >>> members.of(["c", "a", "new"])  # who is not known goes where most are
    {'0.0': ['a', 'new'], '0.1': ['c']}
    """

    def __init__(self) -> None:
        self.tree = CohortTree()
        self._leaf_of: dict[str, str] = {}

    def split(self, leaf: str, groups: Sequence[Sequence[str]]) -> list[str]:
        """Replace a leaf by one child per group of clients, and return the children."""
        children = self.tree.split(leaf, len(groups))
        for child, keys in zip(children, groups, strict=True):
            self._leaf_of |= dict.fromkeys(keys, child)
        return children

    def put(self, key: str, leaf: str) -> None:
        """Move a client to a leaf."""
        if leaf not in self.tree or self.tree.children(leaf):
            raise ValueError(f"leaf: expected one of {self.tree.leaves()}, got {leaf!r}")
        self._leaf_of[key] = leaf

    def of(self, keys: Sequence[str]) -> dict[str, list[str]]:
        """Return the leaves with those of the clients that are in them."""
        sizes = Counter(self.leaf_of(key) for key in self._leaf_of)
        groups: dict[str, list[str]] = {leaf: [] for leaf in self.tree.leaves()}
        largest = max(groups, key=lambda leaf: sizes[leaf])
        for key in keys:
            groups[self.leaf_of(key) or largest].append(key)
        return groups

    def leaf_of(self, key: str) -> str | None:
        """Return the leaf of a client; nothing if it is not known, or its cohort was split."""
        leaf = self._leaf_of.get(key)
        return None if leaf is None or self.tree.children(leaf) else leaf

    def state_dict(self) -> dict[str, Any]:
        """Return the leaves and their members."""
        return {"tree": self.tree.state_dict(), "leaf_of": dict(self._leaf_of)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore what :meth:`state_dict` returned."""
        tree = CohortTree.of_leaves(state["tree"]["leaves"])
        unknown = set(state["leaf_of"].values()) - set(tree.cohorts())
        if unknown:
            raise ValueError(f"state: members of {sorted(unknown)}; leaves are {tree.leaves()}")
        self.tree, self._leaf_of = tree, dict(state["leaf_of"])


class Grouping:
    """What algorithms have in common that put clients into the leaves of a tree."""

    members: Membership

    def leaves(self) -> list[str]:
        """Return the cohorts that train."""
        return self.members.tree.leaves()

    def split_by(self, labels: NDArray[np.intp], keys: Sequence[str]) -> list[str]:
        """Put clients into a cohort for each label, if there are several; return the cohorts."""
        found = range(int(labels.max(initial=-1)) + 1)
        groups = [[keys[i] for i in np.flatnonzero(labels == label).tolist()] for label in found]
        return self.members.split(ROOT, groups) if len(groups) > 1 else self.leaves()

    def state_dict(self) -> dict[str, Any]:
        """Return the tree and who is where."""
        return self.members.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take back what :meth:`state_dict` returned."""
        self.members.load_state_dict(state)


def path_distance(explored: str, other: str) -> int:
    """Return how far above ``explored`` the lowest cohort is that holds both (section 4.3).

    >>> path_distance("0.0.1", "0.1.0")
    2
    """
    numbers = explored.split(".")
    pairs = zip(numbers, other.split("."), strict=False)
    common = len(list(takewhile(lambda pair: pair[0] == pair[1], pairs)))
    return len(numbers) - max(common, 1)


def _ancestors(cohort: str) -> list[str]:
    """Return the paths above one, the lowest first."""
    numbers = cohort.split(".")
    return [".".join(numbers[:length]) for length in range(len(numbers) - 1, 0, -1)]


def _is_path(cohort: str) -> bool:
    numbers = cohort.split(".")
    plain = all(number.isdecimal() and str(int(number)) == number for number in numbers)
    return plain and numbers[0] == ROOT
