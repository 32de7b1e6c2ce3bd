"""MOON's memory: the model that the client sent last time."""

from ...core.learning.job import Job, Outcome
from ...core.learning.objectives.moon import PREVIOUS
from ..request import Arrays, ClientHook, ClientRequest


class PreviousModel(ClientHook):
    """Bring the previous local model to the objective, and keep the new one."""

    def before(self, request: ClientRequest) -> None:
        """Hand on the previous model, unless it is of another shape than the one that came."""
        previous = request.state.get(PREVIOUS)
        if previous is not None and shapes(previous) == shapes(request.arrays):
            request.carried[PREVIOUS] = previous

    def after(self, request: ClientRequest, job: Job, outcome: Outcome) -> Outcome:
        """Keep the trained model."""
        request.state[PREVIOUS] = outcome.arrays
        return outcome


def shapes(arrays: Arrays) -> dict[str, tuple[int, ...]]:
    """Return the shape of each array."""
    return {name: array.shape for name, array in arrays.items()}
