"""What the supports that a run has collected tell about its clients.

The similarity of all clients by their supports (or signatures, where no more was sent) is held
against the truth: label histograms and KNN-Shapley, made of the data that the run's config names.
Where the data cannot be loaded again, what needs no truth is left.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ..core.config import RunConfig, read_config
from ..core.log.events import AlignmentFound, SimilarityFound, as_events
from ..core.storage import tree
from ..core.tasks import Samples, TaskError, load_task
from ..core.wire.supports import decode_support
from ..selectors.similarities.histograms import histogram_similarity
from ..selectors.similarities.index_overlap import centred_overlap_matrix, overlap_matrix
from ..selectors.similarities.signature_overlaps import (
    centred_overlaps_by_signature,
    overlaps_by_signature,
)
from ..selectors.similarities.valuation import kendall_by_client
from ..server_app.run_folder import SUPPORTS, RunFolder, RunFolderError
from ..tools.experiments.tables import Table
from ..tools.report import write_report
from .ios_alignment import (
    Matrix,
    Scores,
    alignment,
    cluster_quality,
    donor_agreement,
    donor_order,
    histograms_of,
    shapley_matrix,
)

DONORS = 5  # that the table of a target shows


class AnalysisError(ValueError):
    """A run that cannot be analysed; the text says why."""


@dataclass(frozen=True)
class Analysis:
    """What was found.

    Attributes
    ----------
    clients : list of str
        In the order of the matrix.
    matrix : array
        Their similarities.
    labels : dict
        The cluster of each client in the run's last clustering.
    scores : dict
        Agreement with the truth and quality of the clusters; empty where the truth is not known.
    truth, worth : array, optional
        Similarity of label histograms; value of each client's data (columns) to the others.
    """

    clients: list[str]
    matrix: Matrix
    labels: dict[str, str]
    scores: Scores
    truth: Matrix | None = None
    worth: Matrix | None = None


def analyse(path: str | Path) -> Analysis:
    """Compare the clients of a run by the supports that they sent."""
    folder = _open(path)
    plain = _config(folder).similarity == "index-overlap"
    clients, matrix = similarities(_read(folder), centred=not plain)
    labels = _last_labels(folder.read_events())
    data, classes = _data(folder, clients)
    if data is None:
        return Analysis(clients, matrix, labels, {})
    histograms, worth = histograms_of(data, classes), shapley_matrix(data)
    scores = alignment(matrix, histograms) | donor_agreement(matrix, worth)
    if set(clients) <= labels.keys():
        found = cluster_quality(np.array([labels[key] for key in clients]), histograms)
        scores |= {f"run's {name}": value for name, value in found.items()}
    truth = histogram_similarity(list(histograms))
    return Analysis(clients, matrix, labels, scores, truth, worth)


def _open(path: str | Path) -> RunFolder:
    try:
        return RunFolder.open(path)
    except RunFolderError as error:
        raise AnalysisError(str(error)) from error


def _read(folder: RunFolder) -> dict[str, Any]:
    if not folder.supports_path.exists():
        raise AnalysisError(
            f"{folder.path}: holds no {folder.supports_path.name}; a finished run with similarity ="
            " 'centred-overlap' or 'index-overlap' and cohorts = 'similarity' or 'neighbours'"
            " leaves one"
        )
    try:
        return tree.load(folder.supports_path, SUPPORTS)
    except tree.TreeError as error:
        raise AnalysisError(str(error)) from error


def similarities(kept: Mapping[str, Any], *, centred: bool = True) -> tuple[list[str], Matrix]:
    """Return the clients and their overlaps: exact for supports, estimated for signatures."""
    exactly = centred_overlap_matrix if centred else overlap_matrix
    estimated = centred_overlaps_by_signature if centred else overlaps_by_signature
    size, tag = int(kept["size"]), int(kept["tag"])
    packed = kept["supports"].items()
    supports = {key: decode_support(data.tobytes(), size, tag) for key, data in packed}
    signed = kept.get("signatures", {})
    clients = list(signed or supports)
    if len(clients) < 2:
        raise AnalysisError(f"supports of {len(clients)} clients: two or more are compared")
    if not signed:
        return clients, exactly([supports[key] for key in clients])
    counts = [int(signed[key]["count"]) for key in clients]
    held = {i: supports[key] for i, key in enumerate(clients) if key in supports}
    signatures = [signed[key]["signature"] for key in clients]
    return clients, estimated(signatures, counts, held)


def _data(folder: RunFolder, clients: Sequence[str]) -> tuple[list[Samples] | None, int]:
    """Return the data of the clients, if the run was one on partitions that can be made again."""
    config = _config(folder)
    numbers = [int(key) if key.isdecimal() else -1 for key in clients]
    if not all(0 <= number < config.num_clients for number in numbers):
        return None, 0
    task = load_task(config.task_spec())
    try:
        held = [task.client_data(number, config.num_clients).train for number in numbers]
    except TaskError:
        return None, 0
    return held, task.num_classes


def _config(folder: RunFolder) -> RunConfig:
    kept = folder.read_config()
    return read_config({key: value for key, value in kept.items() if key != "overrides"})


def _last_labels(log: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    drawn = [event for event in as_events(log) if isinstance(event, SimilarityFound)]
    return drawn[-1].labels if drawn else {}


def donor_table(found: Analysis, target: str = "") -> Table:
    """Return each client's best donors; of one target, all of them with what is known of each."""
    if not target:
        return _best_donors(found)
    if target not in found.clients:
        raise AnalysisError(f"--target {target!r}: not among {', '.join(found.clients[:50])}")
    row = found.clients.index(target)
    lines = [["donor", "similarity", "of labels", "KNN-Shapley"]]
    for other in donor_order(found.matrix[row], row):
        known = [f"{m[row, other]:.4f}" if m is not None else "-" for m in _truths(found)]
        lines.append([found.clients[other], f"{found.matrix[row, other]:.3f}", *known])
    return Table(lines)


def _truths(found: Analysis) -> tuple[Matrix | None, Matrix | None]:
    return found.truth, found.worth


def _best_donors(found: Analysis) -> Table:
    taus = [None if m is None else kendall_by_client(found.matrix, m) for m in _truths(found)]
    lines = [["client", "best donors", "tau, labels", "tau, KNN-Shapley"]]
    for row, key in enumerate(found.clients):
        best = [found.clients[i] for i in donor_order(found.matrix[row], row)[:DONORS]]
        known = [f"{tau[row]:.3f}" if tau is not None else "-" for tau in taus]
        lines.append([key, ", ".join(best), *known])
    return Table(lines)


def score_table(scores: Scores) -> Table:
    """Return how well the similarity agrees with the truth."""
    return Table([["measure", "value"], *([name, f"{v:.3f}"] for name, v in scores.items())])


def write_down(path: str | Path, found: Analysis) -> None:
    """Add the agreement with the truth to the run's log, and write its report again."""
    folder = _open(path)
    labels, shapley = (
        [] if truth is None else list(kendall_by_client(found.matrix, truth))
        for truth in _truths(found)
    )
    event = AlignmentFound(
        clients=found.clients,
        scores=dict(found.scores),
        tau_labels=labels,
        tau_shapley=shapley,
    )
    folder.append_event(event.to_dict())
    write_report(folder)
