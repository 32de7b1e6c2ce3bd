"""What a run says about itself: a page for the browser and a table for the terminal."""

import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from .client_tables import client_rows
from .history import History
from .page import render
from .rounds import csv_columns
from .story import summary

if TYPE_CHECKING:  # the run folder itself uses this package's history for its table of rounds
    from ...server_app.run_folder import RunFolder

__all__ = ["summary_table", "write_report", "write_rounds_csv"]


def write_report(folder: "RunFolder") -> Path:
    """Write `report.html` from `config.json` and `events.jsonl`, however far the run came."""
    history = History.from_events(folder.read_events())
    config = folder.read_config() or history.started.config
    text = render(folder.path.resolve().name, config, history, folder.path)
    return folder.write_text("report.html", text)


def write_rounds_csv(folder: "RunFolder") -> Path:
    """Write `rounds.csv` and `clients.csv`, one row per round and client; the unknown is empty."""
    history = History.from_events(folder.read_events())
    clients = client_rows(history)
    if clients:
        named = [{k.replace(" ", "-"): value for k, value in row.items()} for row in clients]
        folder.write_text("clients.csv", _csv(list(named[0]), named))
    rows = [{"round": number, **history.rows[number]} for number in sorted(history.rows)]
    return folder.write_text("rounds.csv", _csv(csv_columns(history.metrics), rows))


def _csv(columns: Sequence[str], rows: Iterable[Mapping[str, object]]) -> str:
    text = io.StringIO()
    writer = csv.DictWriter(text, columns, extrasaction="ignore", lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def summary_table(folder: "RunFolder") -> str:
    """Return the run's key figures as a table for the terminal, with the path of the report."""
    pairs = summary(History.from_events(folder.read_events()))
    written = folder.report_path.exists()
    pairs.append(("report", str(folder.report_path) if written else "not written"))
    width = max(len(name) for name, _ in pairs)
    return "\n".join(f"{name:<{width}}  {value}" for name, value in pairs)
