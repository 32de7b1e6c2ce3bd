"""What all tests share."""

import logging
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from forager.server_app import app

# The fakes of the strategies' tests, and Flower as real processes, are of use to others.
for _folder in ("unit/strategies", "deployment", "integration"):
    sys.path.insert(0, str(Path(__file__).parent / _folder))


@pytest.fixture(autouse=True, scope="session")
def _no_waiting_for_the_disk() -> Iterator[None]:
    """Files need not survive a power cut here: ten thousands of them are written."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda handle: None)
        yield


@pytest.fixture
def said():
    """Return the list of what the project's logger says during a test, also once in a process."""
    app._warn_once.cache_clear()
    lines: list[str] = []

    class Listener(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            lines.append(record.getMessage())

    logger, listener = logging.getLogger("forager"), Listener()
    logger.addHandler(listener)
    yield lines
    logger.removeHandler(listener)
