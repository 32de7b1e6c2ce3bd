"""TensorBoard files: ``callbacks = "tensorboard"`` (`pip install 'forager-fl[tensorboard]'`)."""

from torch.utils.tensorboard import SummaryWriter

from ...server_app.callbacks.base import Callback
from ...server_app.loop import Loop
from ...server_app.run_folder import RunFolder
from .rounds import csv_columns
from .tail import RoundValues


class TensorBoard(Callback):
    """Write every number of a round as a scalar, under the names of ``rounds.csv``."""

    def __init__(self, folder: RunFolder) -> None:
        self._writer = SummaryWriter(str(folder.path / "tensorboard"))
        self._values = RoundValues(folder)

    def on_run_start(self, loop: Loop) -> None:
        """Pass over the rounds of an earlier leg, which are written already."""
        self._values.skip()

    def on_round_end(self, loop: Loop) -> None:
        """Write what the log says of the round."""
        for current, row in self._values.new():
            for name in csv_columns(loop.metrics):
                if name in row:
                    self._writer.add_scalar(name, row[name], current)

    def on_run_end(self, loop: Loop) -> None:
        """Close the files."""
        self._writer.close()
