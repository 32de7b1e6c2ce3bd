"""ODE's plan: which client is to store how many samples of which class."""

from ...core.log.events import StoragePlanned
from .class_charts import clients_by_classes
from .formatting import plural
from .history import History
from .picture import Picture
from .svg import Plot


def plan_chart(history: History) -> Plot | None:
    """Draw the last plan: how many samples of each class each client is to store."""
    plan = history.last(StoragePlanned)
    if plan is None:
        return None
    names = [history.name_of(key) for key in plan.quota]
    return clients_by_classes("plan", list(plan.quota.values()), names, "client")


def plan_sentence(history: History) -> str:
    """Say what the last plan asks of clients."""
    plan = history.last(StoragePlanned)
    if plan is None or not plan.quota:
        return ""
    labels = [sum(count > 0 for count in row) for row in plan.quota.values()]
    unplanned = sum(count == 0 for count in plan.stored)
    gap = f"; nobody is to store {plural(unplanned, 'class', 'classes')}" if unplanned else ""
    each = f"{min(labels)} to {max(labels)}" if min(labels) < max(labels) else str(labels[0])
    return (
        f"The last plan, of round {plan.round}, gives each of {plural(plan.clients, 'client')} "
        f"{each} classes to store{gap}."
    )


PICTURES = (
    Picture(
        "Who is to store what",
        plan_chart,
        "The last plan: a row is a client, a column a class; the stronger, the more samples of it "
        "the client is to keep. Every column needs some colour, or the class is lost; a row with "
        "many pale cells spreads a small store over many classes.",
    ),
)
