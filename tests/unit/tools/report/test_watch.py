"""Following a run: what is said of it, a log that grows, breaks off or starts again."""

import io
import json
import re
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from forager.server_app.run_folder import RunFolderError
from forager.tools.flower.announcement import announce, note_end, withdraw
from forager.tools.report.history import History
from forager.tools.report.tail import Tail
from forager.tools.report.watch.follow import events_file, follow
from forager.tools.report.watch.view import line, panel
from rich.console import Console


def begin(rounds: int = 4) -> dict[str, Any]:
    return {
        "event": "run-started",
        "strategy": "cosage on digits",
        "config": {"num-server-rounds": rounds},
    }


def choose(number: int, *chosen: str, **more: Any) -> dict[str, Any]:
    return {"event": "selected", "round": number, "phase": "train", "chosen": list(chosen), **more}


def play(number: int, late: tuple[str, ...] = ()) -> list[dict[str, Any]]:
    at = {"round": number}
    traffic = {"bytes-down": 3000, "bytes-up": 1000, "seconds": 1.0}
    return [
        {"event": "exchange", "kind": "query.summary", **at, "bytes-down": 400, "bytes-up": 100},
        choose(number, "a", "b"),
        {
            "event": "exchange",
            "kind": "train",
            **at,
            **traffic,
            "late": list(late),
            "reply-seconds": {"median": 0.5, "slowest": {"slow": 1.25, "b": 0.75}},
        },
        {"event": "evaluated", "where": "server", "accuracy": 0.1 * number, **at},
        {"event": "evaluated", "where": "clients", "accuracy-worst-10": 0.05, **at},
        {"event": "round-finished", "seconds": 2.0, **at},
    ]


END = {"event": "run-finished", "reason": "completed", "rounds": 4, "message": ""}


def write(path: Path, *events: dict[str, Any]) -> None:
    with path.open("a") as file:
        file.writelines(json.dumps(event) + "\n" for event in events)


def seen(state: History, quiet: float = 0.0) -> str:
    console = Console(file=io.StringIO(), width=120, force_terminal=False)
    console.print(panel(state, "runs/x", quiet))
    return str(console.file.getvalue())


def test_a_round_under_way_shows_who_trains_and_what_is_left() -> None:
    state = History()
    state.take([begin(), *play(1), *play(2, late=("b",)), *play(3, late=("b", "a"))])
    state.take([choose(4, "c", cohort="0"), choose(4, "d", cohort="1")])
    text = seen(state)
    for words in (
        "cosage on digits",
        "3 of 4",
        "30.0 % on the server's test data  best 30.0 %  ▁▅█",
        "2: c, d",
        "b (2x), a (1x)",
        "slow (1.2 s), b (750 ms)",
        "9.00 kB down, 3.00 kB up, 1.50 kB selecting",
        "about 2.0 s",
    ):
        assert words in text
    assert "longer than usual" not in text
    assert "nobody" not in text
    assert "longer than usual" in seen(state, quiet=5.0)
    assert "no news for" in seen(state, quiet=90.0)


def test_when_nobody_trains_it_says_what_is_done_instead() -> None:
    state = History()
    state.take([begin(), *play(1)])
    assert "nobody: choosing clients" in seen(state)
    assert re.search(r"late so far +nobody", seen(state))
    state.take(play(2)[:4])
    assert "nobody: aggregating and testing" in seen(state)
    state.take([END])
    assert "choosing" not in seen(state)


def test_clients_with_different_models_are_judged_on_their_own_data() -> None:
    state = History()
    tested = [
        {"event": "evaluated", "round": 1, "where": "server", "accuracy": 0.4},
        {"event": "evaluated", "round": 1, "where": "clients", "accuracy-mean": 0.9},
    ]
    state.take([begin(), *tested])
    assert re.search(r"accuracy +40.0 %", seen(state))
    assert line(state).startswith("round 0/4  accuracy 40.0 %")
    members = {"0": 1, "1": 1}
    state.take([{"event": "cohorts", "round": 1, "members": members}])
    assert re.search(r"accuracy +90.0 %", seen(state))
    assert re.search(r"on the server's test data +accuracy 40.0 %", seen(state))
    assert line(state).startswith("round 0/4  accuracy 90.0 % on clients' own data")


def test_names_from_strangers_cannot_draw_on_the_terminal() -> None:
    state = History()
    names = ["[bold red]x[/]", "\x1b[2Jgone", *map(str, range(20))]
    state.take([begin(), choose(1, *names)])
    text = seen(state)
    assert "[bold red]x[/]" in text
    assert "\x1b" not in text
    assert "and 14 more" in text


def test_long_names_leave_room_for_what_is_said_of_them() -> None:
    state, name = History(), "node-3150492073830745023"
    state.take([begin(), *play(1, late=(name,)), *play(2, late=(name,))])
    seconds = {"median": 0.5, "slowest": {name: 4.2}}
    state.take([{"event": "exchange", "kind": "train", "round": 3, "reply-seconds": seconds}])
    text = seen(state)
    assert re.search(r"late so far +node-31\S*… \(2x\)", text)
    assert re.search(r"slowest last +node-31\S*… \(4.2 s\)", text)


def test_a_torn_line_waits_and_a_resumed_log_starts_again(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    tail = Tail(path)
    assert tail.read() == ([], False)
    write(path, begin())
    with path.open("a") as file:
        file.write('{"event": "sel')
    assert tail.read() == ([begin()], True)
    with path.open("a") as file:
        file.write('ected"}\nnot json\n')
    assert tail.read() == ([{"event": "selected"}], False)
    replaced = tmp_path / "new"
    write(replaced, END)
    replaced.replace(path)
    assert tail.read() == ([END], True)


def test_latest_is_the_run_written_to_last(tmp_path: Path) -> None:
    assert events_file("latest", tmp_path) is None
    for name in ("old", "new"):
        (tmp_path / name).mkdir()
        write(tmp_path / name / "events.jsonl", begin())
        time.sleep(0.01)
    assert events_file("latest", tmp_path) == tmp_path / "new" / "events.jsonl"
    write(tmp_path / "old" / "events.jsonl", END)
    assert events_file("latest", tmp_path) == tmp_path / "old" / "events.jsonl"


def test_it_follows_until_the_run_ends(tmp_path: Path) -> None:
    folder, out = tmp_path / "run", io.StringIO()

    def wait_for(words: str) -> None:
        deadline = time.monotonic() + 30
        while words not in out.getvalue() and time.monotonic() < deadline:
            time.sleep(0.005)

    def run() -> None:
        wait_for("waiting")
        folder.mkdir()
        write(folder / "events.jsonl", begin(), *play(1))
        wait_for("round 1/4")
        write(folder / "events.jsonl", *play(2, late=("b",)))
        wait_for("round 2/4")
        write(folder / "events.jsonl", *play(3), *play(4), END)

    writer = threading.Thread(target=run)
    writer.start()
    assert follow("latest", tmp_path, 0.01, Console(file=out, width=200)) == 0
    writer.join()
    lines = out.getvalue().splitlines()
    assert lines[0] == f"waiting for a run in {tmp_path}"
    assert lines[1] == (
        "round 1/4  accuracy 10.0 % on the server's test data  "
        "3.00 kB down, 1.00 kB up, 500 B selecting  about 6.0 s left"
    )
    assert "round 2/4" in lines[2]
    assert "late: b" in lines[2]
    assert lines[-1].endswith("run: completed after 4 rounds")


def test_a_folder_that_is_none_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RunFolderError, match="'no/such/folder' is not a run folder"):
        follow("no/such/folder", tmp_path)


def test_a_run_that_is_about_to_start_is_the_latest(tmp_path: Path) -> None:
    (tmp_path / "old").mkdir()
    write(tmp_path / "old" / "events.jsonl", begin(), END)
    announce(tmp_path / "new")
    assert events_file("latest", tmp_path) is None
    (tmp_path / "new").mkdir()
    write(tmp_path / "new" / "events.jsonl", begin())
    assert events_file("latest", tmp_path) == tmp_path / "new" / "events.jsonl"
    withdraw(tmp_path / "new")
    assert events_file("latest", tmp_path) == tmp_path / "new" / "events.jsonl"


def test_a_launcher_that_died_announces_nothing(tmp_path: Path) -> None:
    (tmp_path / ".starting-gone").write_text("999999999\n")
    (tmp_path / "old").mkdir()
    write(tmp_path / "old" / "events.jsonl", begin())
    assert events_file("latest", tmp_path) == tmp_path / "old" / "events.jsonl"


def test_a_run_that_could_not_write_its_end_gets_one(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    write(path, begin(), *play(1), *play(2))
    note_end(tmp_path, "interrupted", "received SIGINT")
    note_end(tmp_path, "killed", "a second time")
    state = History()
    state.take([json.loads(line) for line in path.read_text().splitlines()])
    assert state.finish is not None
    assert (state.finish.reason, state.finish.rounds) == ("interrupted", 2)
