"""Small functions of core/log, each by an example."""

from forager.core.log.event import shorten
from forager.core.log.events import RunStarted


def test_number_of_events():
    RunStarted(config={"num-server-rounds": 5, "task": "digits"}).number("task")


def test_shorten_of_text():
    assert (shorten("0123456789", 6), shorten("a\x00b", 6)) == ("01234…", "a�b")
