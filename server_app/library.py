"""Forager's own loop in your app, with events, report, live page and resuming."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from flwr.serverapp import Grid

from ..strategies.library import Model, Settings, own_app_config
from . import app


class Ran(NamedTuple):
    """The folder of a finished run, and why it ended."""

    folder: Path
    reason: str


def run(
    grid: Grid,
    settings: Settings,
    *,
    model: Model,
    data: Any,
    loss: Callable[[Any, Any], Any] | None = None,
) -> Ran:
    """Train your own model with Forager's own loop.

    Parameters
    ----------
    grid : Grid
        Flower's, from the main function of your ServerApp.
    settings : str or mapping
        The name of a preset, or keys of Forager's run config. ``resume-from`` continues a run.
    model : Module or callable
        The model, or a function that returns one.
    data : pair of arrays or tensors, data set or data loader
        The server's own samples: for testing, and a part of them for methods that need samples.
    loss : callable, optional
        As in :func:`forager.client_mod`.

    Examples
    --------
    >>> run(None, {"task": "digits"}, model=None, data=None)
    Traceback (most recent call last):
    ValueError: settings: task: the task and the model are your app's own
    """
    app.configure_logging()
    folder, reason = app.run(grid, own_app_config(settings, model, data, loss))
    return Ran(folder.path, reason)
