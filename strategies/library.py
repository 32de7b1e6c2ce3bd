"""The layers as others use them, around a Flower strategy in an app of their own.

``Selection(FedAvg(fraction_train=0.3), CosAge())`` needs nothing else: it handles client identity,
questions and checks of replies. How many clients take part is set on the Flower strategy, as
always. The client side is :func:`forager.client_mod`.
"""

import copy
import logging
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch
from flwr.app import ArrayRecord, ConfigRecord, Message
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Strategy
from pydantic import ValidationError
from torch import nn

from ..core.learning.gradient_rows import server_targets
from ..core.methods.auxo import AuxoSettings
from ..core.tasks.splits import Split
from ..core.wire.arrays import from_record, to_record
from ..core.wire.keys import ARRAYS, BUDGET, CONFIG, CORESET, NUM_EXAMPLES
from ..core.wire.replies import Replies
from ..core.wire.versions import why_nobody_connects
from ..selectors.client_selectors.age import oldest
from ..selectors.client_selectors.base import ClientSelector
from ..selectors.client_selectors.uniform import Uniform
from .aggregation.flower_aggregator import FlowerAggregator
from .cohorts.auxo import AuxoRule
from .cohorts.base import CohortRule
from .cohorts.update_sketches import Signal
from .federation.federation import Federation
from .federation.observations import ASKED
from .layers import cohorts, coresets, selection
from .layers.base import Layer, describe
from .layers.quarantine import Quarantine

_log = logging.getLogger("forager")
# What the layers read and write has these names; Flower's strategies can use others.
_KEYS = {"arrayrecord_key": ARRAYS, "configrecord_key": CONFIG, "weighted_by_key": NUM_EXAMPLES}
_EVERYONE = {"fraction_train": 1.0, "fraction_evaluate": 1.0}
_LONELY = 30  # seconds without any client after which the log says what to check
_ANYBODY = ("min_train_nodes", "min_evaluate_nodes", "min_available_nodes")


class Checked(Quarantine):
    """Checks every reply before the layer inside reads it: a bad client costs only itself."""

    def __init__(self, layer: Layer) -> None:
        super().__init__(layer, weight_factor=10.0)

    def describe(self) -> str:
        """Return the stack as one line, without the checks."""
        return describe(self.inner)


class Selection(Checked):
    """Let a rule choose the clients that a Flower strategy trains.

    Parameters
    ----------
    inner : Strategy
        One of Flower's, or your own. Its ``fraction_train`` and ``fraction_evaluate`` say how many
        clients take part, its ``min_available_nodes`` how many must be there.
    selector : ClientSelector, optional
        The rule; uniform by default, as FedAvg draws.
    count : int (default: 0)
        Clients per round; 0 uses the strategy's ``fraction_train``.
    seed : int (default: 0)
        The choice repeats for the same seed and clients.
    summary_mode : str (default: "query")
        "query" asks clients before it chooses; "piggyback" uses what their last replies said, which
        costs no message.
    ask_at_most : int (default: 0)
        Ask at most this many clients per round, the oldest first; 0 for no limit.
    at_most : float (default: 0.0)
        A client is chosen at most this many times as often as the average; 0 for no limit.
    question_deadline : float (default: 60.0)
        Seconds to wait for answers.
    empty_rounds : int (default: 3)
        Rounds in a row without anybody to train after which to fail; 0 for any number.

    Examples
    --------
    >>> from flwr.serverapp.strategy import FedAvg
    >>> from ..selectors.client_selectors.cosage import CosAge
    >>> Selection(FedAvg(fraction_train=0.3), CosAge(silent_ratio=0.1)).describe()
    'Chosen(FlowerAggregator(FedAvg))'
    """

    def __init__(
        self,
        inner: Strategy,
        selector: ClientSelector | None = None,
        *,
        count: int = 0,
        seed: int = 0,
        summary_mode: str = "query",
        ask_at_most: int = 0,
        at_most: float = 0.0,
        question_deadline: float = 60.0,
        empty_rounds: int = 3,
    ) -> None:
        if isinstance(inner, Layer):
            raise TypeError(
                f"Selection({type(inner).__name__}(...)): the selection goes inside, around the "
                f"Flower strategy: {type(inner).__name__}(Selection(FedAvg(), ...))"
            )
        if selector is not None and not isinstance(selector, ClientSelector):
            raise TypeError(f"selector: expected a rule such as CosAge(), got {selector!r}")
        if summary_mode not in ("query", "piggyback"):
            raise ValueError(f"summary_mode = {summary_mode!r}: expected 'query' or 'piggyback'")
        federation = Federation(
            deadline=question_deadline, identify_timeout=question_deadline, route="train"
        )
        base = FlowerAggregator(_everyone(inner), mean_like=False, federation=federation)
        super().__init__(
            Chosen(
                base,
                selector or Uniform(),
                least=int(getattr(inner, "min_available_nodes", 1)),
                count=count,
                fraction=float(getattr(inner, "fraction_train", 1.0)),
                fraction_evaluate=float(getattr(inner, "fraction_evaluate", 1.0)),
                seed=seed,
                summary_mode=summary_mode,
                ask_at_most=ask_at_most,
                at_most=at_most,
                empty_rounds=empty_rounds,
            )
        )


class Chosen(selection.Selection):
    """The selection itself, where some clients may not answer questions.

    Those compete by their age alone: of a round's places they get the share that they have of the
    clients.
    """

    def __init__(
        self, inner: Strategy, selector: ClientSelector, *, least: int, **settings: Any
    ) -> None:
        super().__init__(inner, selector, **settings)
        self.least = least

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Wait for as many clients as the strategy wants to see, then choose."""
        seconds = 0
        while len(there := list(grid.get_node_ids())) < self.least:
            if seconds == 0:
                _log.info("waiting for %d clients, %d are connected", self.least, len(there))
            if seconds == _LONELY and not there:
                _log.warning(why_nobody_connects())
            time.sleep(1.0)
            seconds += 1
        return super().configure_train(server_round, arrays, config, grid)

    def _filled_up(self, picked: list[int], nodes: Sequence[int], count: int) -> list[int]:
        wanted = [name for name in ASKED if name in self.selector.needs]
        can_answer = self.federation.roster.can_answer
        mute = [n for n in nodes if not all(can_answer(n, name) for name in wanted)]
        places = min(count, round(count * len(mute) / len(nodes))) if mute else 0
        if places:
            ages = self.memory.values(self.federation.keys(mute), "age")
            by_age = [mute[i] for i in oldest(ages, places, self._rng)]
            picked = [node for node in picked if node not in by_age][: count - places] + by_age
        return super()._filled_up(picked, nodes, count)


class Coresets(Checked):
    """Let clients train on a coreset that matches the gradients of the server's samples (GCFL).

    Parameters
    ----------
    inner : Strategy
        A Flower strategy, or a :class:`Selection` around one.
    model : Module
        The model, whose last layer is an ``nn.Linear`` that produces the logits.
    data : tuple of arrays or tensors
        Inputs and labels of the server's own samples.
    budget : float (default: 0.1)
        Samples that a client trains on: a share of its data up to 1, a number above.
    every : int (default: 10)
        Rounds after which a coreset is chosen again.
    first_round : int (default: 1)
        Rounds on a random subset before the first choice.
    """

    def __init__(
        self,
        inner: Strategy,
        *,
        model: nn.Module,
        data: tuple[Any, Any],
        budget: float = 0.1,
        every: int = 10,
        first_round: int = 1,
    ) -> None:
        if not budget > 0 or (budget > 1 and budget != int(budget)):
            raise ValueError(f"budget = {budget!r}: expected a share up to 1, or a whole number")
        x, y = data
        own = Split(torch.as_tensor(x, dtype=torch.float32), torch.as_tensor(y).long())

        def targets(arrays: ArrayRecord) -> ArrayRecord:
            means = server_targets(model, from_record(arrays), own, per_class=True)
            return to_record({"means": means})

        layer = _WithCoresets(_layer(inner), targets=targets, every=every, first_round=first_round)
        layer.budget = float(budget)
        super().__init__(layer)


class _WithCoresets(coresets.Coresets):
    """Sends clients the budget, and takes replies of clients that know nothing of coresets."""

    budget = 0.1

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Say how much to train on, and what to choose it by."""
        config[BUDGET] = self.budget
        return super().configure_train(server_round, arrays, config, grid)

    def take(self, server_round: int, replies: Replies) -> Replies:
        """Count clients without the mod as training on all their data."""
        column = list(replies.records.get(CORESET, [None] * len(replies)))
        for row, node in enumerate(replies.nodes):
            if column[row] is None and not self.federation.roster.can_answer(node, CORESET):
                size = int(replies.metrics[NUM_EXAMPLES][row])  # which was checked
                column[row] = ConfigRecord({"round": 0, "size": size, "seconds": 0.0})
        replies.records[CORESET] = column
        return super().take(server_round, replies)


class Cohorts(Checked):
    """Train one model per cohort of alike clients.

    Parameters
    ----------
    inner : Strategy
        What trains each cohort's model: a Flower strategy, or a layer around one. Cohorts after the
        first get copies of it.
    rule : CohortRule
        Who belongs where, such as :class:`Auxo`.
    dimension : int (default: 256)
        Length of the sketches that updates are compared by.
    seed : int (default: 0)
        Of the sketches.
    """

    def __init__(
        self, inner: Strategy, rule: CohortRule, *, dimension: int = 256, seed: int = 0
    ) -> None:
        if not isinstance(rule, CohortRule):
            raise TypeError(f"rule: expected a rule such as Auxo(), got {rule!r}")
        first = _layer(inner)
        federation = first.federation
        # A copy of everything but the clients, which all cohorts share.
        untouched = copy.deepcopy(first, {id(federation): federation})
        made: list[Layer] = []

        def make() -> Layer:
            made.append(
                first if not made else copy.deepcopy(untouched, {id(federation): federation})
            )
            return made[-1]

        chosen = _selection_in(first)
        self.cohorts = cohorts.Cohorts(
            make,
            rule,
            Signal(dimension, seed),
            count=chosen.count,
            fraction=chosen.fraction,
        )
        super().__init__(self.cohorts)

    @property
    def members(self) -> Mapping[str, str]:
        """The cohort of each client, by its name."""
        return self.cohorts.members

    def cohort_models(self) -> dict[str, ArrayRecord]:
        """Return the model of each cohort."""
        return dict(self.cohorts.leaf_models)


class Auxo(AuxoRule):
    """Auxo's rule: cohorts are split where the updates of clients show groups.

    Parameters
    ----------
    seed : int (default: 0)
        Of what is drawn at random.
    participants : int (default: 10)
        Approximate number of clients that train per round.
    **settings
        Any of ``parts``, ``first_split``, ``split_rounds``, ``within_groups``,
        ``min_participants`` and ``ask_newcomers``, which mean what the keys ``auxo.*`` do.

    Examples
    --------
    >>> Auxo(parts=2, first_split=5).leaves()
    ['0']
    >>> Auxo(within_groups=2.0)
    Traceback (most recent call last):
    ValueError: Auxo: within_groups = 2.0: input should be less than or equal to 1
    """

    def __init__(self, *, seed: int = 0, participants: int = 10, **settings: float) -> None:
        try:
            checked = AuxoSettings(**settings)  # type: ignore[arg-type]
        except ValidationError as error:
            problems = (
                f"{e['loc'][0]} = {e['input']!r}: {e['msg'].lower()}" for e in error.errors()
            )
            raise ValueError(f"Auxo: {'; '.join(problems).replace('-', '_')}") from None
        self.set_up(checked, seed, participants=participants)


def _everyone(strategy: Strategy) -> Strategy:
    """Return a copy of a strategy that trains all clients it sees, even a single one."""
    for attribute, expected in _KEYS.items():
        found = getattr(strategy, attribute, expected)
        if found != expected:
            kind = type(strategy).__name__
            raise ValueError(f"{kind}({attribute}={found!r}): Forager's layers need {expected!r}")
    own = copy.copy(strategy)
    for name, value in {**_EVERYONE, **dict.fromkeys(_ANYBODY, 1)}.items():
        if hasattr(own, name):
            setattr(own, name, value)
    return own


def _layer(strategy: Strategy) -> Layer:
    """Return the layer that checks are made around; a plain strategy draws its own clients."""
    if isinstance(strategy, Checked):
        assert isinstance(strategy.inner, Layer)
        return strategy.inner
    if isinstance(strategy, Layer):
        return strategy
    return _layer(Selection(strategy))


def _selection_in(layer: Strategy) -> selection.Selection:
    while isinstance(layer, Layer):
        if isinstance(layer, selection.Selection):
            return layer
        layer = layer.inner
    raise TypeError("Cohorts(...): there is no Selection inside")
