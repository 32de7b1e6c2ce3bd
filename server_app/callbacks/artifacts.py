"""Write the run's tables, model and report when it ends."""

import logging
from collections.abc import Callable
from dataclasses import dataclass

from ...core.methods.base import load
from ...core.storage import tree
from ...core.tasks.errors import advice
from ...core.wire.arrays import from_record
from ..loop import Loop
from ..run_folder import SUPPORTS, RunFolder
from .base import Callback
from .best_model import Frozen, input_scale, write_model

_log = logging.getLogger("forager")


@dataclass(eq=False)
class Artifacts(Callback):
    """Leave model, tables, supports and report behind; ``frozen`` returns what never travels."""

    folder: RunFolder
    report: bool = True
    frozen: Frozen = dict

    def on_run_end(self, loop: Loop) -> None:
        """Write them all; one that cannot be written does not cost the others."""
        self.folder.check_lease()
        _log.info("writing the model%s ...", " and the report" if self.report else "")
        steps: dict[str, Callable[[], object]] = {
            "model.safetensors": lambda: self._write_models(loop),
            "supports.safetensors": lambda: self._write_supports(loop),
            "rounds.csv": lambda: load("tools.report:write_rounds_csv")(self.folder),
        }
        if self.report:
            steps["report.html"] = lambda: load("tools.report:write_report")(self.folder)
        for name, write in steps.items():
            try:
                write()
            except OSError as error:
                _log.warning("%s could not be written: %s", self.folder.path / name, error)
                if name == "model.safetensors":
                    loop.unwritten.append(name)
            except ImportError as error:
                told = advice(error) or error
                _log.warning("%s is not written: %s", self.folder.path / name, told)
            except Exception:  # a fault of this program: the run itself has succeeded
                _log.exception("%s could not be written", self.folder.path / name)

    def _write_supports(self, loop: Loop) -> None:
        collected = loop.strategy.collected()
        if collected:
            tree.save(self.folder.supports_path, collected, SUPPORTS)

    def _write_models(self, loop: Loop) -> None:
        """Write the model, and with cohorts also each cohort's own; frozen arrays included."""
        frozen, about = self.frozen(), input_scale(loop.federation.scale)
        write_model(self.folder.model_path, {**frozen, **from_record(loop.arrays)}, about)
        models = loop.strategy.models(loop.arrays)
        for name, (own, _) in models.items() if len(models) > 1 else ():
            path = self.folder.model_path.with_name(f"model-{name}.safetensors")
            write_model(path, {**frozen, **from_record(own)}, about)
