"""What a model reaches that always says the same, for the report to compare with."""

import torch
from torch import nn

from ..core.learning.evaluation import evaluate
from ..core.log.events import Baseline, ClientNames, DataChecked
from ..core.tasks import Classification, Regression, Split, Task
from ..core.tasks.errors import TaskError
from ..strategies.federation.federation import Federation


class _Always(nn.Module):
    """A model that gives the same answer to everything."""

    def __init__(self, answer: torch.Tensor) -> None:
        super().__init__()
        self.answer = answer

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """Return one answer per input."""
        return self.answer.expand(len(inputs), *self.answer.shape)


def baseline(task: Task) -> Baseline | None:
    """Return what a model reaches that always says the same; None where that means nothing."""
    test = task.server_data().test
    if not isinstance(test, Split) or not len(test):
        return None
    if type(task.problem) is Classification:
        commonest = int(torch.bincount(test.y).argmax())
        answer = torch.zeros(task.num_outputs)
        answer[commonest], what = 1.0, f"always class {commonest}"
    elif type(task.problem) is Regression:
        answer, what = test.y.mean(dim=0), "always the mean"
    else:
        return None
    known = [m for m in task.metrics if m.compute is None and m.name not in ("loss", "perplexity")]
    found = evaluate(_Always(answer), {}, test, task.problem, known)
    return Baseline(what=what, metrics={m.name: found[m.name] for m in known if m.name in found})


def note_data(federation: Federation, task: Task, clients: int, *, resumed: bool) -> list[str]:
    """Note names of clients and what of the data may mislead; 0 clients where they are devices."""
    try:
        names, found = task.client_names(clients), task.findings(clients)
    except TaskError:  # so many clients cannot share the data: whoever opens a client's says so
        names, found = [], task.findings(0)
    federation.roster.names = {str(i): name for i, name in enumerate(names)}
    if resumed:
        return []
    if names:
        federation.note(ClientNames(names=federation.roster.names))
    if found:
        federation.note(DataChecked(findings=found))
    return found
