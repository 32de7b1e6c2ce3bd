"""What all tests share."""

import logging

import pytest


@pytest.fixture
def said():
    """Return the list of what the project's logger says during a test."""
    lines: list[str] = []

    class Listener(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            lines.append(record.getMessage())

    logger, listener = logging.getLogger("forager"), Listener()
    logger.addHandler(listener)
    yield lines
    logger.removeHandler(listener)
