"""Small functions of core/, each by an example."""

from forager.core.backoff import rest


def test_rest_of_backoff():
    assert ([rest(times) for times in (1, 2, 3, 4, 100)]) == [1, 2, 4, 8, 64]
