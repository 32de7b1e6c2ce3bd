"""What `forager run` shows of the log that Flower sends."""

from pathlib import Path

import pytest
from forager.tools.flower.run import show_progress

LOG = """Using SuperLink: forager (127.0.0.1:1)
INFO :      Starting Flower Simulation
fedavg on digits: rounds 1 to 3
ERROR :     ['`metadata.ttl` must be higher than zero', 'Message TTL has expired']
round 1/3  accuracy 48.8 %
ERROR :     ServerApp raised an exception
Traceback (most recent call last):
  File "x.py", line 1
round 2/3  accuracy 54.4 %
run completed
rounds  3
"""


def test_an_error_that_the_run_survives_does_not_hide_the_rounds(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    show_progress(LOG.splitlines(), tmp_path / "run.log")
    assert capsys.readouterr().out.splitlines() == [
        "fedavg on digits: rounds 1 to 3",
        "round 1/3  accuracy 48.8 %",
        "round 2/3  accuracy 54.4 %",
    ]
    assert (tmp_path / "run.log").read_text() == LOG
