"""When the plan of who stores which label is made again."""

from forager.selectors.stream_selectors.storage_plan import StoragePlan


def test_every_plan_for_drift_doubles_the_rounds_until_the_next_up_to_eighty() -> None:
    plan = StoragePlan(0.1, 0, 0, "proportional", cover=False)
    rows, made = {"a": [9.0, 1.0], "b": [1.0, 9.0]}, []
    for number in range(1, 240):
        if plan.update(number, rows, {"a": 5, "b": 5}, {"a": 10**6, "b": 10**6}) is not None:
            made.append(number)
            rows = {"a": rows["b"], "b": rows["a"]}  # what comes has changed since
    assert made == [1, 11, 31, 71, 151, 231]
