"""The base class of callbacks, and the user's own callbacks."""

from __future__ import annotations

import logging
from collections.abc import Callable
from importlib import import_module
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from ...core.config import ConfigError
from ...core.tasks.errors import advice
from ...selectors.stateful import Stateful
from ..run_folder import RunFolder

if TYPE_CHECKING:
    from ..loop import Loop


class Callback(Stateful):
    """Called by the round loop; a subclass overrides the methods that it needs.

    What ``remembers`` names survives a resume.

    >>> class Enough(Callback):
    ...     def on_round_end(self, loop):
    ...         return "ten rounds are enough" if loop.round == 10 else None
    """

    def on_run_start(self, loop: Loop) -> None:
        """Act before the first round, or before the first after a resume."""

    def on_round_end(self, loop: Loop) -> str | None:
        """Act after every round; a returned text ends the run and is its reason."""

    def on_roll_back(self, loop: Loop) -> None:
        """Act after the run has returned to an earlier round, ``loop.round``."""

    def on_run_end(self, loop: Loop) -> None:
        """Act after the last round, however the run ended; ``loop.reason`` is the reason."""


_log = logging.getLogger("forager")
_HOPELESS = 3  # failures in a row
_ROOT = __name__.rpartition(".")[0]
_PACKAGE = __name__.partition(".")[0]

SHIPPED = {
    "mlflow": f"{_ROOT}.mlflow_runs:MlflowRuns",
    "prometheus": f"{_ROOT}.prometheus:Prometheus",
    "tensorboard": f"{_PACKAGE}.tools.report.tensorboard:TensorBoard",
    "wandb": f"{_ROOT}.wandb_runs:WandbRuns",
}

# What they need, to be missed before the run begins
_NEEDS = {
    "mlflow": "mlflow",
    "prometheus": "prometheus_client",
    "tensorboard": "tensorboard",
    "wandb": "wandb",
}

Make = Callable[[RunFolder], Callback]


def load_callbacks(text: str) -> dict[str, Make]:
    """Return the factories of the callbacks that a run config names; an error if one is missing."""
    names = [name.strip() for name in text.split(",") if name.strip()]
    return {name: _loaded(name) for name in names}


def _loaded(name: str) -> Make:
    place = SHIPPED.get(name, name)
    module, _, attribute = place.partition(":")
    if not module or not attribute:
        shipped = ", ".join(SHIPPED)
        raise ConfigError(
            f"run config: callbacks = {name!r}: expected module:attribute, or one of {shipped}"
        )
    try:
        if name in _NEEDS:
            import_module(_NEEDS[name])
        make: Make = attrgetter(attribute)(import_module(module))
    except (ImportError, AttributeError) as error:
        told = (advice(error) if isinstance(error, ImportError) else "") or str(error)
        raise ConfigError(
            f"run config: callbacks = {name!r}: {told}; use module:attribute, or one of "
            f"{', '.join(SHIPPED)}"
        ) from error
    if not callable(make):
        raise ConfigError(
            f"run config: callbacks = {name!r}: expected a class or function that takes the run "
            f"folder, found {type(make).__name__}"
        )
    return make


class OwnCallbacks(Callback):
    """Calls them all, and survives what they raise."""

    def __init__(self, makers: dict[str, Make], folder: RunFolder) -> None:
        self.callbacks: dict[str, Callback] = {}
        for name, make in makers.items():
            made = make(folder)
            if not isinstance(made, Callback):
                raise ConfigError(
                    f"run config: callbacks = {name!r}: expected a forager.Callback, "
                    f"got {type(made).__name__}"
                )
            self.callbacks[name] = made
        self._failures = dict.fromkeys(self.callbacks, 0)

    def on_run_start(self, loop: Loop) -> None:
        """Call all of them."""
        self._call("on_run_start", loop)

    def on_round_end(self, loop: Loop) -> str | None:
        """Call all of them; the first reason to end the run counts."""
        reasons = self._call("on_round_end", loop)
        return next((reason for reason in reasons if isinstance(reason, str) and reason), None)

    def at_the_end(self) -> Callback:
        """Return a callback that notifies them of the end, after all files are written."""
        own = self

        class AtTheEnd(Callback):
            def on_run_end(self, loop: Loop) -> None:
                own._call("on_run_end", loop)

        return AtTheEnd()

    def state_dict(self) -> dict[str, Any]:
        """Return what each wants to find again after a resume."""
        return {name: callback.state_dict() for name, callback in self.callbacks.items()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore what :meth:`state_dict` returned."""
        for name, callback in self.callbacks.items():
            callback.load_state_dict(dict(state.get(name, {})))

    def _call(self, method: str, loop: Loop) -> list[Any]:
        results = []
        for name, callback in self.callbacks.items():
            if self._failures[name] >= _HOPELESS:
                continue
            try:
                results.append(getattr(callback, method)(loop))
                self._failures[name] = 0
            except Exception as error:  # of a stranger's code, or of a tracker that is down
                self._failures[name] += 1
                gives_up = self._failures[name] >= _HOPELESS
                _log.warning(
                    "callback %s failed in %s: %s: %s; the run continues%s",
                    name,
                    method,
                    type(error).__name__,
                    str(error)[:300],
                    " without it" if gives_up else "",
                )
        return results
