"""A SuperNode that the server does not understand says which version it is and what to do."""

import importlib.util
import sys
from pathlib import Path

import pytest

PLACE = Path(__file__).parents[2] / "docker" / "supernode.py"


def test_attempts_in_vain_are_explained_once(capfd: pytest.CaptureFixture[str]) -> None:
    spec = importlib.util.spec_from_file_location("supernode", PLACE)
    assert spec is not None
    assert spec.loader is not None
    supernode = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(supernode)
    attempt = "print('WARNING: Connection attempt failed, retrying in 0.4 seconds', flush=True)"
    program = f"for _ in range(20):\n    {attempt}\nraise SystemExit(1)"
    assert supernode.run([sys.executable, "-c", program], "camera-7", "fl.example.org:9092") == 1
    said = capfd.readouterr().out
    assert said.count("camera-7: fl.example.org:9092 does not answer") == 1
    assert f"version {supernode.flower_version()}" in said
    assert "constraints.txt" in said


def test_one_attempt_in_vain_is_nothing(capfd: pytest.CaptureFixture[str]) -> None:
    spec = importlib.util.spec_from_file_location("supernode", PLACE)
    assert spec is not None
    assert spec.loader is not None
    supernode = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(supernode)
    program = "print('Connection attempt failed, retrying'); print('SuperNode ID: 7')"
    supernode.run([sys.executable, "-c", program], "camera-7", "fl.example.org:9092")
    assert "does not answer" not in capfd.readouterr().out
