"""A diagnosis as lines and as a page."""

from html import escape
from pathlib import Path

from ...server_app.run_folder import RunFolder, RunFolderError
from ..report.formatting import natural_order
from ..report.html_page import page, sortable_table
from .advice import advice
from .evidence import Evidence
from .findings import Finding, findings

_COLUMNS = {
    "quantity skew": "samples",
    "groups": "group",
    "doubtful labels": "share of labels in doubt",
    "drift": "data changed in round",
    "slow or away": "seconds",
    "own models": "gain of own model",
}


def diagnose(folder: RunFolder, target: float | None = None) -> tuple[dict[str, str], Path]:
    """Return the lines of a run's diagnosis by name, and where the page with them is."""
    seen = Evidence.of(folder.read_events())
    if not seen.rounds:
        raise RunFolderError(
            f"{folder.path}: this run cannot be diagnosed; it needs data-selector = 'examined', as "
            "forager diagnose sets it, and one finished round"
        )
    found = findings(seen, target)
    lines = {name: finding.text for name, finding in found.items()}
    lines |= advice(found, folder.read_config().get("overrides", {}))
    title = f"Diagnosis of {folder.path.name}"
    told = "".join(f"<p><b>{name}</b>: {escape(text)}</p>" for name, text in lines.items())
    body = f"<h1>{escape(title)}</h1>{told}"
    path = folder.write_text("diagnosis.html", page(title, body + _clients(found), []))
    return lines, path


def _clients(found: dict[str, Finding]) -> str:
    columns = {_COLUMNS[n]: f.clients for n, f in found.items() if n in _COLUMNS and f.clients}
    keys = sorted({key for own in columns.values() for key in own}, key=natural_order)
    rows = []
    for key in keys:
        values = [own.get(key) for own in columns.values()]
        cells = [("" if value is None else f"{value:.3g}", value) for value in values]
        rows.append(("", [(escape(key), key), *cells]))
    return f"<h2>Clients</h2>{sortable_table(['client', *columns], rows)}"
