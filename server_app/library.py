"""Forager's own loop in an app of somebody's: events, report, live page and resuming included."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from flwr.serverapp import Grid

from ..strategies.library import Model, Settings, own_app_config
from . import app


class Ran(NamedTuple):
    """What a run left behind: its folder, and how it ended."""

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
    """Run one federated training of your own model, as Forager's own app does.

    - ``grid``: flower's, from the main function of your ServerApp.
    - ``settings``: the name of a preset, or keys of Forager's run config. ``resume-from`` goes on
      with a run.
    - ``model``: the model, or what makes one.
    - ``data``: the server's own samples: what models are tested on, and what methods that need
      samples get a part of.
    - ``loss``: as that of :func:`forager.client_mod`.
    """
    app.configure_logging()
    folder, reason = app.run(grid, own_app_config(settings, model, data, loss))
    return Ran(folder.path, reason)
