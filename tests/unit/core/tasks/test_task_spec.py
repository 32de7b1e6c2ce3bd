import dataclasses

import pytest
from forager.core.tasks import Task, TaskError, TaskSpec, load_task
from forager.core.tasks.errors import CONFIG_KEYS


@pytest.mark.parametrize(
    ("field", "value", "expected"),
    [
        ("task", "digit", "did you mean 'digits'"),
        ("partition", "dirichlett", "did you mean 'dirichlet'"),
        ("noise", "closedset", "did you mean 'closed-set'"),
        ("seed", -1, "at least 0"),
        ("seed", "3", "a whole number"),
        ("seed", True, "a whole number"),
        ("num_classes", 1, "0 (from the data) or at least 2"),
        ("validation_share", 1.0, "[0, 1)"),
        ("client_test_share", -0.1, "[0, 1)"),
        ("alpha", 0.0, "above 0"),
        ("alpha", float("nan"), "above 0"),
        ("shards_per_client", 0, "at least 1"),
        ("classes_per_client", 0, "at least 1"),
        ("noise_rate", 1.1, "[0, 1]"),
        ("hidden", 0, "at least 1"),
        ("path", 3, "a text"),
        ("tokens", 1, "true or false"),
        ("kind", "ranking", "one of auto, classification"),
        ("task", 3, "a text"),
    ],
)
def test_bad_value_is_refused_with_field_value_and_allowed(field, value, expected):
    with pytest.raises(TaskError) as caught:
        load_task(TaskSpec(**{field: value}))
    message = str(caught.value)
    assert message.startswith(f"{CONFIG_KEYS.get(field, field)} = ")
    assert expected in message


def test_every_number_has_a_range():
    from forager.core.tasks.spec import _RULES

    numbers = {f.name for f in dataclasses.fields(TaskSpec) if type(f.default) in (int, float)}
    assert numbers == set(_RULES)


def test_whole_numbers_pass_where_numbers_are_expected():
    assert isinstance(load_task(TaskSpec(alpha=1, noise_rate=0)), Task)


def test_same_spec_same_task():
    assert load_task(TaskSpec(seed=5)) is load_task(TaskSpec(seed=5))
    assert load_task(TaskSpec(seed=5)) is not load_task(TaskSpec(seed=6))
