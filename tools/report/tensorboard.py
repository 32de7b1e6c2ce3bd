"""TensorBoard files: ``callbacks = "tensorboard"`` (`pip install 'forager-fl[tensorboard]'`)."""

from torch.utils.tensorboard import SummaryWriter

from ...server_app.callbacks.base import Callback
from ...server_app.loop import Loop
from ...server_app.run_folder import RunFolder
from .history import History
from .rounds import csv_columns
from .tail import Tail


class TensorBoard(Callback):
    """Write every number of a round as a scalar, under the names of ``rounds.csv``.

    Parameters
    ----------
    folder : RunFolder
        The run's folder; the files go below it, and what happened is read from its log.
    """

    def __init__(self, folder: RunFolder) -> None:
        self._writer = SummaryWriter(str(folder.path / "tensorboard"))
        self._log = Tail(folder.events_path)

    def on_run_start(self, loop: Loop) -> None:
        """Pass over the rounds of an earlier leg, which are written already."""
        self._log.read()

    def on_round_end(self, loop: Loop) -> str | None:
        """Write what the log says of the round."""
        events, _ = self._log.read()
        rows = History.from_events(events).rows
        for current in sorted(rows):
            for name in csv_columns(loop.metrics):
                if name in rows[current]:
                    self._writer.add_scalar(name, rows[current][name], current)
        return None

    def on_run_end(self, loop: Loop) -> None:
        """Close the files."""
        self._writer.close()
