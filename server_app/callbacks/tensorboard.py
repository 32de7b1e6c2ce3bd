"""TensorBoard files, if asked for (`pip install forager[tensorboard]`)."""

from pathlib import Path

from server_app.callbacks.base import Callback
from server_app.loop import Loop


class TensorBoard(Callback):
    """Write accuracy, loss and bytes of every round as scalars.

    Parameters
    ----------
    folder : Path
        Where the files go.
    """

    def __init__(self, folder: Path) -> None:
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError as error:
            raise ValueError(
                "tensorboard = true: the package tensorboard is not installed (extra 'tensorboard')"
            ) from error
        self._writer = SummaryWriter(str(folder))

    def on_round_end(self, loop: Loop) -> str | None:
        """Write the round's numbers."""
        scalars = {"seconds": loop.round_seconds}
        if loop.evaluated_round == loop.round and loop.accuracy is not None:
            scalars |= {"accuracy": loop.accuracy, "loss": loop.loss}
        if loop.train_exchange is not None:
            scalars |= {
                "bytes-down": float(loop.train_exchange.bytes_down),
                "bytes-up": float(loop.train_exchange.bytes_up),
            }
        for name, value in scalars.items():
            self._writer.add_scalar(name, value, loop.round)
        return None

    def on_run_end(self, loop: Loop) -> None:
        """Close the files."""
        self._writer.close()
