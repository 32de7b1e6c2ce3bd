"""Who could help whom, and how far that agrees with the truth: IOS's uses (iii) and (iv)."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ..core.config import default_config, read_config
from ..core.log.events import AlignmentFound, SimilarityFound
from ..core.tasks import ClientData, Samples, TaskError, load_task
from ..selectors.similarities.histograms import histogram_similarity, mixture_divergence
from ..selectors.similarities.valuation import (
    donor_values,
    kendall_agreement,
    kendall_by_client,
    recall_at,
)
from ..server_app.run_folder import RunFolder, RunFolderError
from .experiments.tables import Table
from .report.history import History
from .report.similarity_charts import matrix_of
from .trust import check_trusted

Matrix = NDArray[np.float64]

NEIGHBOURS = 8  # that a client's mixture is made of (table 5)
BEST = 5  # donors
_DONOR_SAMPLES, _TARGET_SAMPLES = 100, 50  # of each client, for KNN-Shapley


@dataclass(frozen=True)
class Ranking:
    """The similarities of clients, and the truth where it is known: by labels, and by worth."""

    clients: list[str]
    matrix: Matrix
    truths: dict[str, Matrix] = field(default_factory=dict)
    scores: dict[str, float] = field(default_factory=dict)

    def donors(self, client: str) -> list[str]:
        """Return the other clients, the most similar first; of equals, the first stays first."""
        row = self.clients.index(client)
        order = np.argsort(-self.matrix[row], kind="stable")
        return [self.clients[other] for other in order if other != row]

    def event(self) -> AlignmentFound:
        """Return the agreement with the truth as an event of the run."""
        taus = {name: kendall_by_client(self.matrix, m) for name, m in self.truths.items()}
        labels, shapley = taus.get("labels", []), taus.get("KNN-Shapley", [])
        return AlignmentFound(
            clients=self.clients, scores=self.scores, tau_labels=labels, tau_shapley=shapley
        )


def rank_donors(folder: RunFolder, *, trust: bool = False) -> Ranking:
    """Rank every client's donors by the similarities that a run last found."""
    event = History.from_events(folder.read_events()).last(SimilarityFound)
    matrix = None if event is None else matrix_of(event)
    if event is None or matrix is None or len(event.clients) < 2:
        raise RunFolderError(
            f"{folder.path}: no similarities of clients are among its events; a run compares "
            "clients with similarity = 'index-overlap', 'centred-overlap', 'signed-overlap', "
            "'cosine', 'euclidean' or 'oracle' and cohorts = 'similarity' or 'neighbours', such as "
            "strategy='ios', from round ios.first-round on"
        )
    held, classes = _data(folder, event.clients, trust)
    if not held:
        return Ranking(event.clients, matrix)
    histograms = [np.bincount(own.true_labels.numpy(), minlength=classes) for own in held]
    truths = {
        "labels": histogram_similarity(histograms),
        "KNN-Shapley": shapley_matrix([own.train for own in held]),
    }
    near = min(NEIGHBOURS, len(held) - 1)
    scores = {name: s for name, m in truths.items() for name, s in _agreement(name, matrix, m)}
    scores[f"JS of the mixture of {near}"] = float(
        mixture_divergence(matrix, histograms, near).mean()
    )
    return Ranking(event.clients, matrix, truths, scores)


def _agreement(name: str, matrix: Matrix, truth: Matrix) -> list[tuple[str, float]]:
    best = min(BEST, len(matrix) - 1)
    tau, recall = kendall_agreement(matrix, truth), recall_at(matrix, truth, best)
    return [(f"Kendall's tau, {name}", tau), (f"Recall@{best}, {name}", recall)]


def _data(
    folder: RunFolder, clients: Sequence[str], trust: bool
) -> tuple[Sequence[ClientData], int]:
    """Return the data of simulated clients, if they can be made again and have classes."""
    saved = {k: v for k, v in folder.read_config().items() if k in default_config()}
    config = read_config(saved)
    numbers = [int(key) if key.isdecimal() else -1 for key in clients]
    if not all(0 <= number < config.num_clients for number in numbers):
        return [], 0
    check_trusted(Path(folder.path), {"task": config.task}, trust)
    try:
        task = load_task(config.task_spec())
        held = [task.client_data(number, config.num_clients) for number in numbers]
    except TaskError:
        return [], 0
    return (held, task.num_classes) if task.problem.has_classes else ([], 0)


def shapley_matrix(data: Sequence[Samples], neighbours: int = 5) -> Matrix:
    """Return what each client's data (columns) are worth to each other (rows) by KNN-Shapley."""
    pairs = [(held.x.numpy(), held.y.numpy()) for held in data]
    donors = [(x[:_DONOR_SAMPLES], y[:_DONOR_SAMPLES]) for x, y in pairs]
    worth = np.zeros((len(pairs), len(pairs)))
    for row, (x, y) in enumerate(pairs):
        others = [i for i in range(len(pairs)) if i != row]
        target = x[:_TARGET_SAMPLES], y[:_TARGET_SAMPLES]
        worth[row, others] = donor_values(target, [donors[i] for i in others], neighbours)
    return worth


def donors_table(found: Ranking, target: str = "") -> Table:
    """Return each client's best donors; of one target, all of them with what is known of each."""
    if not target:
        taus = {name: kendall_by_client(found.matrix, m) for name, m in found.truths.items()}
        rows = [
            [key, ", ".join(found.donors(key)[:BEST]), *(f"{tau[n]:.2f}" for tau in taus.values())]
            for n, key in enumerate(found.clients)
        ]
        return Table([["client", "best donors", *(f"tau, {name}" for name in taus)], *rows])
    if target not in found.clients:
        raise RunFolderError(f"--of {target!r}: not among {', '.join(found.clients[:50])}")
    row, place = found.clients.index(target), found.clients.index
    matrices = [found.matrix, *found.truths.values()]
    lines = [
        [donor, *(f"{matrix[row, place(donor)]:.3f}" for matrix in matrices)]
        for donor in found.donors(target)
    ]
    return Table([["donor", "similarity", *found.truths], *lines])
