"""Write the run's tables, model and report when it ends."""

import logging

from safetensors.numpy import save

from server_app.callbacks.base import Callback
from server_app.loop import Loop
from server_app.report import write_report
from server_app.run_folder import RunFolder
from wire.arrays import from_record
from wire.files import write_atomically

_log = logging.getLogger("forager")


class Artifacts(Callback):
    """Leave ``model.safetensors``, ``rounds.csv`` and ``report.html`` behind.

    Parameters
    ----------
    folder : RunFolder
        The run's folder, which already holds the config and the events.
    """

    def __init__(self, folder: RunFolder) -> None:
        self.folder = folder

    def on_run_end(self, loop: Loop) -> None:
        """Write all three; one that cannot be written does not cost the others."""
        arrays = from_record(loop.arrays)
        events = self.folder.read_events()
        for write in (
            lambda: write_atomically(self.folder.model_path, save(arrays)),
            lambda: self.folder.write_rounds_csv(events),
            lambda: write_report(self.folder),
        ):
            try:
                write()
            except OSError as error:
                _log.warning("%s: could not be written: %s", self.folder.path, error)
