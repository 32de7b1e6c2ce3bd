"""CLoVE: k models from the start; clients with like losses on all of them share one."""

from ...core.config import RunConfig
from ...core.methods.cohort import CohortSettings
from ...selectors.cohorts.clove import Clove
from .ifca import IfcaRule


class CloveRule(IfcaRule):
    """Ask every client for the loss of every model, as IFCA does, and cluster the answers."""

    def __init__(self, config: RunConfig) -> None:
        super().__init__(config)
        self.core = Clove(config[CohortSettings].number)
