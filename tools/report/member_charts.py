"""Who is in which cohort, round by round, and how far that agrees with planted groups."""

import numpy as np

from ...core.log.events import CohortsTrained
from ...core.tasks.groups import group_of
from .axes import SERIES_PIXELS, pixel_rows, rows_height
from .cohort_tree import CohortDescent
from .formatting import natural_order, shorten
from .history import History
from .hover import over_cells
from .html_page import folded_table, text
from .svg import Axes, Picture, Plot, draw

MOST_CLIENTS = 200  # rows of the picture, and of the table


def memberships(history: History) -> dict[int, dict[str, str]]:
    """Return the cohort of each client after each round."""
    found: dict[int, dict[str, str]] = {}
    now: dict[str, str] = {}
    for current, events in history.noted(CohortsTrained).items():
        for event in events:
            now = {**now, **event.moved}
        found[current] = now
    return found


def planted_groups(history: History) -> dict[str, int]:
    """Return the group that was planted in each client's data, by the run's settings."""
    config = history.started.config
    planted = config.get("groups.kind", "none") != "none"
    count = history.started.number("groups.count")
    if not (planted or config.get("partition") == "class-groups") or not count or count < 2:
        return {}
    known = [key for key in last_memberships(history) if key.isascii() and key.isdigit()]
    return {key: group_of(int(key[:9]), int(count)) for key in known}


def last_memberships(history: History) -> dict[str, str]:
    """Return the cohort of each client at the end."""
    found = memberships(history)
    return found[max(found)] if found else {}


def agreement_sentence(history: History) -> str:
    """Say how far the cohorts found the groups that were planted."""
    groups, where = planted_groups(history), last_memberships(history)
    if len(groups) < 2:
        return ""
    from sklearn.metrics import adjusted_rand_score  # takes a second, and most runs plant nothing

    index = adjusted_rand_score([where[key] for key in groups], list(groups.values()))
    return (
        f"The clients' data have {len(set(groups.values()))} planted groups; the cohorts agree "
        f"with them to {index:.2f} (adjusted Rand index: 1 is the same grouping, 0 is chance)."
    )


def members_chart(history: History) -> Plot | None:
    """Draw a row per client and a column per round, in the colour of its cohort."""
    found, tree = memberships(history), CohortDescent(history)
    names = {name for where in found.values() for name in where.values()}
    if len(names) < 2:
        return None
    last, groups = found[max(found)], planted_groups(history)
    place = {cohort.name: number for number, cohort in enumerate(tree.ordered())}
    keys = sorted(last, key=lambda key: (place.get(last[key], -1), natural_order(key)))
    keys = keys[:: -(-len(keys) // MOST_CLIENTS)]
    first, rounds = min(found), max(found) - min(found) + 1
    pixels = np.zeros((len(keys), rounds, 4), dtype=np.uint8)
    shown = ["", *sorted(f"cohort {tree.shown(name)}" for name in names)]
    told = np.zeros(pixels.shape[:2])
    where: dict[str, str] = {}
    for column in range(rounds):
        where = found.get(first + column, where)
        for row, key in enumerate(keys):
            if key in where:
                told[row, column] = shown.index(f"cohort {tree.shown(where[key])}")
                line = tree.cohorts[where[key]].line if where[key] in tree.cohorts else 0
                pixels[row, column] = SERIES_PIXELS[line % len(SERIES_PIXELS)]

    def paint(axes: Axes) -> None:
        pixel_rows(axes, pixels, first, [history.name_of(key) for key in keys], "client")

    planted = {key: f" (group {group})" for key, group in groups.items()}
    rows = [f"{shorten(history.name_of(key), 20)}{planted.get(key, '')}" for key in keys]
    columns = [f"round {first + column}" for column in range(rounds)]
    hover = over_cells(rows, columns, told, names=shown)
    return draw("members", rows_height(len(keys)), paint, hover)


def members_table(history: History) -> str:
    """Return who is in which cohort at the end."""
    tree, groups = CohortDescent(history), planted_groups(history)
    names = last_memberships(history)
    where = {key: tree.shown(name) for key, name in names.items()}
    if len(set(where.values())) < 2:
        return ""
    keys = sorted(where, key=lambda key: (natural_order(where[key]), natural_order(key)))
    rows = []
    for key in keys[:MOST_CLIENTS]:
        name = history.name_of(key)
        cells: list[tuple[str, object]] = [(text(name, 80), name)]
        cells.append((text(where[key], 40), where[key]))
        if not tree.named_by_descent:
            cells.append((f"<code>--cohort {text(names[key], 40)}</code>", names[key]))
        if groups:
            cells.append((str(groups.get(key, "")), groups.get(key)))
        rows.append(cells)
    files = [] if tree.named_by_descent else ["for forager predict"]
    head = ["client", "cohort", *files, *(["planted group"] if groups else [])]
    return folded_table("Who is in which cohort at the end", head, rows)


PICTURES = (
    Picture(
        "Who is in which cohort",
        members_chart,
        "Rows are clients, columns are rounds, and colours are cohorts, as in the pictures above. "
        "Rows are in the order of the last cohorts. Look for rows that change colour often: "
        "clients that fit no cohort.",
    ),
)
