"""The live page by HTTP: its token, its limits, what it sends while a run goes on."""

import http.client
import json
import os
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
import uvicorn
from forager.tools.live import fragments
from forager.tools.live.runs import Runs
from forager.tools.live.server import application, kept_token, listening_socket
from forager.tools.report import metric_charts, participation_charts
from forager.tools.report.history import History
from forager.tools.report.svg import Picture

TOKEN = "secret" * 8
STRANGE = 'a "b" &?c'
HOSTILE = "<img src=x onerror=alert(1)>\"'</script>"


def write(folder: Path, *events: dict[str, Any]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "events.jsonl").open("a") as file:
        file.writelines(json.dumps(event) + "\n" for event in events)


def begin(title: str = "cosage on digits") -> dict[str, Any]:
    return {"event": "run-started", "strategy": title, "config": {"num-server-rounds": 4}}


def play(number: int, client: str = "a") -> list[dict[str, Any]]:
    at = {"round": number}
    return [
        {"event": "selected", "phase": "train", "chosen": [client], **at},
        {"event": "exchange", "kind": "train", "failed": {client: "broke"}, "late": [client], **at},
        {"event": "evaluated", "where": "server", "accuracy": 0.1 * number, "loss": 1.0, **at},
        {"event": "round-finished", "seconds": 2.0, **at},
    ]


class Served:
    """The page on a port of its own, with a client that speaks HTTP to it."""

    def __init__(self, runs: Runs, end: socket.socket) -> None:
        self.port = end.getsockname()[1]
        self.server: uvicorn.Server
        app = application(runs, TOKEN, 0.02, lambda: self.server.should_exit)
        config = uvicorn.Config(
            app, log_level="critical", lifespan="off", ws="none", timeout_graceful_shutdown=2
        )
        self.server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self.server.run, args=([end],))
        self._thread.start()

    def stop(self) -> None:
        self.server.should_exit = True
        self._thread.join(20)
        assert not self._thread.is_alive()

    def get(self, path: str, **headers: str) -> http.client.HTTPResponse:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        connection.request("GET", path, headers=headers)
        return connection.getresponse()

    def events(self, query: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
        """Yield what is sent, as a browser would read it."""
        answer = self.get(f"/{TOKEN}/events{query}")
        assert answer.status == 200
        assert answer.headers["content-type"].startswith("text/event-stream")
        kind = ""
        for line in answer:
            name, _, value = line.decode().rstrip("\n").partition(": ")
            if name == "event":
                kind = value
            elif name == "data":
                yield kind, json.loads(value)


@contextmanager
def serving(runs: Runs, port: int = 0) -> Iterator[Served]:
    end = socket.socket()
    end.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    end.bind(("127.0.0.1", port))
    end.listen()
    served = Served(runs, end)
    try:
        yield served
    finally:
        served.stop()


@pytest.fixture(autouse=True)
def _few_pictures(monkeypatch: pytest.MonkeyPatch) -> None:
    """Drawing has its own tests: two pictures, without a rest."""

    def few(history: History) -> tuple[tuple[str, tuple[Picture, ...]], ...]:
        some = (metric_charts.pictures(history)[0], participation_charts.PICTURES[0])
        return (("some", some),)

    monkeypatch.setattr(fragments, "chapters", few)
    monkeypatch.setattr(fragments, "IDLE_SHARE", 0.0)


@pytest.fixture
def output(tmp_path: Path) -> Path:
    folder = tmp_path / "runs"
    write(folder / "one", begin(), *play(1))
    return folder


def wait_for(events: Iterator[tuple[str, dict[str, Any]]], part: str, words: str) -> dict[str, Any]:
    """Return the first message about a run whose part has these words."""
    deadline = time.monotonic() + 30
    for kind, content in events:
        assert time.monotonic() < deadline
        if kind == "run" and words in content["parts"].get(part, ""):
            return content
    raise AssertionError("the stream ended")


def test_without_the_token_nothing_is_answered(output: Path) -> None:
    with serving(Runs(output)) as page:
        for path in ("/", "/wrong/", "/wrong/events", "/wrong/report?run=one", f"/{TOKEN[:-1]}/"):
            answer = page.get(path)
            assert answer.status == 403, path
            assert b"token" in answer.read()
        assert page.get(f"/{TOKEN}/", Host="evil.example").status == 400  # DNS rebinding
        answer = page.get(f"/{TOKEN}/")
        assert answer.status == 200
        policy = answer.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe-inline" not in policy.split("script-src")[1].split(";")[0]
        assert answer.headers["cache-control"] == "no-store"


@pytest.mark.parametrize(
    "path", ["/../secret", "/%2e%2e/secret", "/one/events.jsonl", "/report?run=../secret"]
)
def test_no_path_leads_out(output: Path, path: str) -> None:
    write(output.parent / "secret", begin("secret"))
    with serving(Runs(output)) as page:
        answer = page.get(f"/{TOKEN}{path}")
        assert answer.status == 404
        assert b"run-started" not in answer.read()


def test_links_that_lead_out_are_not_followed(output: Path) -> None:
    write(output.parent / "secret", begin("secret"))
    (output / "link").symlink_to(output.parent / "secret")
    (output / "half").mkdir()
    (output / "half" / "events.jsonl").symlink_to(output.parent / "secret" / "events.jsonl")
    assert [run.name for run in Runs(output).look()] == ["one"]


def test_what_happens_arrives_while_the_run_goes_on(output: Path) -> None:
    with serving(Runs(output)) as page:
        events = page.events()
        kind, content = next(events)
        assert kind == "list"
        assert content["runs"] == [{"name": "one", "shown": True}]
        first = wait_for(events, "status", "Round 1 of 4, accuracy 10.0&nbsp;%")  # words come first
        assert "cosage on digits" in first["parts"]["head"]
        assert "broke" in first["parts"]["faults"]
        wait_for(events, "metric-accuracy", "<svg")
        write(output / "one", *play(2))
        second = wait_for(events, "status", "Round 2 of 4, accuracy 20.0&nbsp;%")
        assert second["id"] == first["id"]
        assert "head" in second["parts"]  # its bar has moved
        if "metric-accuracy" not in second["parts"]:  # pictures come with the words or later
            wait_for(events, "metric-accuracy", "<svg")


def test_a_new_run_appears_and_runs_stand_side_by_side(output: Path) -> None:
    with serving(Runs(output)) as page:
        events = page.events()
        assert next(events)[1]["shown"]
        write(output / "two", begin("ode on digits"), *play(1), *play(2))
        shown = next(c["shown"] for kind, c in events if kind == "list" and len(c["shown"]) > 1)
        assert shown[0] == "all"
        assert len(shown) == 3
        wait_for(events, "overlay", "<svg")
        kind, only = next(page.events("?run=two"))
        assert kind == "list"
        assert [run["name"] for run in only["runs"] if run["shown"]] == ["two"]


def test_a_page_that_was_open_finds_the_server_again(output: Path) -> None:
    with serving(Runs(output)) as page:
        port = page.port
        events = page.events()
        wait_for(events, "status", "Round 1")
    assert list(events) == []  # the stream ended with the server
    write(output / "one", *play(2))
    with serving(Runs(output), port) as page:
        again = wait_for(page.events(), "status", "Round 2 of 4")
        assert "head" in again["parts"]  # all of it is sent again


def test_strangers_cannot_inject(output: Path) -> None:
    write(output / "bad", begin(HOSTILE), *play(1, HOSTILE), *play(2, HOSTILE))
    write(
        output / "bad", {"event": "quarantined", "round": 2, "client": HOSTILE, "reason": HOSTILE}
    )
    write(output / "bad", {"event": "selected", "phase": "train", "round": 3, "chosen": [HOSTILE]})
    with serving(Runs(output)) as page:
        events = page.events("?run=bad")
        seen = "".join(wait_for(events, "status", "Round 2")["parts"].values())
        seen += "".join(wait_for(events, "participation", "<svg")["parts"].values())
        assert "onerror" in seen  # it is shown ...
        assert "<img" not in seen  # ... as text
        assert "</script" not in seen
        saved = page.get(f"/{TOKEN}/report?run=bad")
        assert "attachment" in saved.headers["content-disposition"]
        assert b"<img" not in saved.read()


def test_a_run_with_a_strange_name_is_found_by_it(output: Path) -> None:
    write(output / STRANGE, begin(), *play(1))
    with serving(Runs(output)) as page:
        kind, content = next(page.events(f"?run={quote(STRANGE)}"))
        assert kind == "list"
        assert [run["name"] for run in content["runs"] if run["shown"]] == [STRANGE]


def test_folders_that_were_named_may_be_anywhere(output: Path, tmp_path: Path) -> None:
    write(tmp_path / "elsewhere" / "one", begin("ode on digits"))
    runs = Runs(output, [tmp_path / "elsewhere" / "one"])
    assert [run.history.started.strategy for run in runs.shown([])] == ["ode on digits"]
    assert sorted(run.name for run in runs.look()) == ["one", "one (2)"]


def test_the_token_is_random_private_and_kept(tmp_path: Path) -> None:
    path = tmp_path / "cache" / "live-token"
    token = kept_token(path)
    assert len(token) == 48
    assert path.stat().st_mode & 0o777 == 0o600
    assert kept_token(path) == token
    os.chmod(path, 0o644)  # somebody may have read it
    assert kept_token(path) != token


def test_a_taken_port_is_an_error_only_if_it_was_asked_for() -> None:
    with listening_socket(0) as first:
        port = first.getsockname()[1]
        assert first.getsockname()[0] == "127.0.0.1"
        with pytest.raises(OSError, match="in use"):
            listening_socket(port)
        with listening_socket(0) as other:
            assert other.getsockname()[1] != port
