import shlex
import subprocess
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from forager.server_app.run_folder import RunFolder
from forager.tools.report import summary_table, write_report
from forager.tools.report.axes import shades
from forager.tools.report.formatting import (
    data_size,
    duration,
    jain_index,
    natural_order,
    run_command,
    shorten,
)
from forager.tools.report.history import History
from forager.tools.report.participation_charts import WAITING
from forager.tools.report.story import last_and_best

VOID_TAGS = {"meta", "path", "use", "image"}


def round_events(number: int, keys: list[str], chosen: list[str]) -> Iterator[dict[str, Any]]:
    """Everything that a round may log, with one failure and one late client in every fifth."""
    at = {"round": number, "time": float(number)}
    failed = {chosen[0]: "RuntimeError: out of memory"} if number % 5 == 0 else {}
    late = [chosen[1]] if number % 5 == 0 else []
    traffic = {"bytes-down": 4000, "bytes-up": 3000}
    loss = 2.0 / number
    spread = {"accuracy-mean": 0.5, "accuracy-worst-10": 0.2, "accuracy-best-10": 0.8}
    yield {"event": "exchange", "kind": "query.proxy", "sent": len(keys), **traffic, **at}
    yield {"event": "selected", "phase": "train", "available": len(keys), "chosen": chosen, **at}
    yield {"event": "exchange", "kind": "train", "failed": failed, "late": late, **traffic, **at}
    yield {"event": "aggregated", "metrics": {"train-loss": loss}, **at}
    yield {"event": "evaluated", "where": "server", "accuracy": 1 - loss / 4, "loss": loss, **at}
    yield {"event": "evaluated", "where": "clients", "loss-mean": loss, **spread, **at}
    yield {"event": "round-finished", "seconds": 1.0, **at}


def run_events(keys: list[str], rounds: int, per_round: int) -> list[dict[str, Any]]:
    """A whole run with seeded choices."""
    rng = np.random.default_rng(7)
    events: list[dict[str, Any]] = [
        {"event": "run-started", "time": 0.0, "strategy": "Random over FedAvg"},
        {"event": "evaluated", "time": 0.0, "round": 0, "where": "server", "accuracy": 0.1},
    ]
    for number in range(1, rounds + 1):
        chosen = [keys[i] for i in rng.choice(len(keys), per_round, replace=False)]
        events += round_events(number, keys, chosen)
    end = {"reason": "completed", "rounds": rounds, "seconds": 65.0, "message": ""}
    return [*events, {"event": "run-finished", "time": 65.0, **end}]


def folder_with(tmp_path: Path, events: list[dict[str, Any]], **config: Any) -> RunFolder:
    folder = RunFolder.create(tmp_path, "run")
    folder.write_config(config)
    for event in events:
        assert folder.append_event(event)
    return folder


class Page(HTMLParser):
    """What a browser would find in a page: tags, attributes, text."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str]] = []
        self.words: list[str] = []
        self.open: list[str] = []
        self.feed(path.read_text(encoding="utf-8"))
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [(name, value or "") for name, value in attrs]
        if tag not in VOID_TAGS:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [(name, value or "") for name, value in attrs]

    def handle_endtag(self, tag: str) -> None:
        if tag not in VOID_TAGS:
            assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.words.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.words).split())


KEYS = [f"client-{number}" for number in range(20)]


def test_a_round_that_is_made_up_is_passed_over() -> None:
    lines = [{"event": "selected", "round": r, "chosen": ["a", "b"]} for r in (1, 2, 10**6)]
    history = History.from_events(lines)
    assert list(history.rows) == [1, 2]
    assert history.ages().shape == (2, 2)


def test_the_page_says_in_words_what_happened(tmp_path: Path) -> None:
    folder = folder_with(tmp_path, run_events(KEYS, 10, 4), rounds=10, overrides={"rounds": 10})
    page = Page(write_report(folder))
    assert page.open == []
    assert "Accuracy after round 10 is 95.0 %" in page.text
    assert "completed after 10 rounds and 1 min 5 s." in page.text
    assert "40.0 kB went down to clients, 30.0 kB came up" in page.text
    assert "selecting took another 70.0 kB (50.0 % of the three)" in page.text
    assert "Jain's index of evenness is" in page.text
    assert "2 requests failed, 2 came too late, and 0 replies were set aside" in page.text
    assert "RuntimeError: out of memory" in page.text
    assert 'forager run -c "rounds=10"' in page.text
    assert '--federation-config "num-supernodes=10" -c "rounds=10"' in page.text
    assert page.tags.count("svg") == page.tags.count("figcaption") == 7


def test_the_page_says_what_a_sparse_uplink_spared(tmp_path: Path) -> None:
    events = run_events(KEYS, 10, 4)
    dense = Page(write_report(folder_with(tmp_path / "dense", events)))
    assert "whole models:" not in dense.text
    assert "with a dense uplink" not in dense.text
    sizes = {"bytes-sparse": 2000, "bytes-dense": 20_000}
    events += [{"event": "uplink", "round": r, **sizes} for r in range(1, 6)]
    sparse = folder_with(tmp_path / "sparse", events)
    page = Page(write_report(sparse))
    assert "30.0 kB came up from them (as whole models: 120 kB)" in page.text
    assert "with a dense uplink" in page.text
    told = " ".join(summary_table(sparse).split())
    assert "bytes up 30.0 kB (as whole models: 120 kB)" in told


def test_the_page_shows_how_long_clients_waited(tmp_path: Path) -> None:
    choices = [["a", "b"], ["a"], ["c"], ["a"], ["b"]]
    events: list[dict[str, Any]] = [
        {"event": "selected", "round": r, "phase": "train", "chosen": chosen}
        for r, chosen in enumerate(choices, start=3)
    ]
    history = History.from_events(events)
    assert history.ages().tolist() == [[0, 0, 0, 1, 0], [0, 0, 1, 2, 3], [0, 1, 2, 0, 1]]
    page = Page(write_report(folder_with(tmp_path, events)))
    assert "The longest that any of them waited was 3 rounds." in page.text
    assert "longest wait" in page.text
    pixels = shades(history.ages(), WAITING)
    assert pixels[:, :, 3].max() == pixels[1, 4, 3] == WAITING[3]
    assert np.array_equal(pixels[:, :, 3] == 0, history.ages() == 0)


def test_the_page_needs_nothing_from_outside(tmp_path: Path) -> None:
    page = Page(write_report(folder_with(tmp_path, run_events(KEYS, 5, 4))))
    assert not {"link", "iframe", "img"} & set(page.tags)
    assert page.tags.count("script") == 2  # the page's own, and the data of its pictures
    ids = [value for name, value in page.attributes if name == "id"]
    assert len(ids) == len(set(ids)) > 0
    for name, value in page.attributes:
        if name in ("href", "src", "xlink:href"):
            assert value.startswith("data:image/png;base64,") or value[1:] in ids
        if "url(" in value:
            assert value.removeprefix("url(#").removesuffix(")") in ids
    text = folder_text(tmp_path)
    assert "http:" not in text
    assert "https:" not in text
    assert "@import" not in text


def folder_text(tmp_path: Path) -> str:
    return (tmp_path / "run" / "report.html").read_text(encoding="utf-8")


def test_the_page_follows_the_colours_of_the_reader(tmp_path: Path) -> None:
    write_report(folder_with(tmp_path, run_events(KEYS, 5, 4)))
    text = folder_text(tmp_path)
    assert "prefers-color-scheme: dark" in text
    assert "currentColor" in text
    assert "#0101" not in text
    svg = text[text.index("<svg") : text.rindex("</svg>")]
    assert "#000000" not in svg
    assert "#ffffff" not in svg


def test_strangers_words_stay_words(tmp_path: Path) -> None:
    nasty = [
        "<script>alert(1)</script>",
        '"><b onload="x">',
        "$\\frac{$",
        "&lt;i&gt;",
        "\udcff\x00",
    ]
    keys = [*nasty, "$x$", "名前", "a\nb", "k" * 5000, "9" * 5000]
    chosen = {"event": "selected", "round": 1, "phase": "train", "chosen": keys}
    failed = {"event": "exchange", "round": 1, "kind": "train", "failed": {k: k for k in keys}}
    away = {"event": "quarantined", "round": 1, "client": nasty[0], "reason": nasty[1]}
    started = {"event": "run-started", "strategy": nasty[0]}
    finished = {"event": "run-finished", "reason": nasty[1], "message": nasty[0]}
    events: list[dict[str, Any]] = [started, chosen, failed, away, finished]
    folder = folder_with(tmp_path, events, **{nasty[0]: nasty[1], "overrides": {"x": nasty[1]}})
    page = Page(write_report(folder))
    assert page.open == []
    assert not {"b", "i"} & set(page.tags)
    assert page.tags.count("script") == 2  # the page's own
    assert "onload" not in {name for name, _ in page.attributes}
    assert nasty[0] in page.text
    assert "$x$" in page.text
    assert "名前" in page.text
    assert "9" * 500 not in page.text


def test_any_beginning_of_a_run_makes_a_page(tmp_path: Path) -> None:
    events = run_events(KEYS, 2, 3)
    for length in [0, 1, 2, 4, 7, len(events) - 1]:
        folder = folder_with(tmp_path / str(length), events[:length])
        page = Page(write_report(folder))
        assert page.open == []
        assert "The log has no end" in page.text
        assert "unknown (no end in the log)" in summary_table(folder)


def test_events_without_their_fields_are_tolerated(tmp_path: Path) -> None:
    names = ["run-started", "selected", "exchange", "quarantined", "aggregated", "evaluated"]
    names += ["checkpoint", "round-finished", "run-finished", "something-new"]
    bare = [{"event": name} for name in names]
    rounds = [{"event": name, "round": 1} for name in names]
    odd: list[dict[str, Any]] = [
        {"event": "selected", "round": 2, "chosen": None, "available": "many", "seconds": None},
        {"event": "exchange", "round": 2, "failed": None, "late": None, "bytes-up": None},
        {"event": "aggregated", "round": 2, "metrics": None},
        {"event": "evaluated", "round": 2, "where": "server", "accuracy": None, "loss": "?"},
        {"event": "round-finished", "round": None, "seconds": None},
        {"time": "x"},
    ]
    folder = folder_with(tmp_path, [*bare, *rounds, *odd])
    page = Page(write_report(folder))
    assert "No accuracy was reported." in page.text
    assert "final accuracy   unknown" in summary_table(folder)


def test_a_page_is_made_without_a_config(tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path)
    folder.append_event({"event": "run-started", "config": {"task": "digits"}})
    assert "digits" in Page(write_report(folder)).text


def test_clients_accuracy_stands_in_for_the_servers(tmp_path: Path) -> None:
    event = {"event": "evaluated", "round": 3, "where": "clients", "accuracy-mean": 0.25}
    page = Page(write_report(folder_with(tmp_path, [event])))
    assert "Accuracy after round 3 is 25.0 % on clients' own data" in page.text


def test_a_big_run_is_a_small_page_and_the_same_one_twice(tmp_path: Path) -> None:
    keys = [f"{number:064x}" for number in range(100)]
    folder = folder_with(tmp_path, run_events(keys, 200, 50))
    first = write_report(folder).read_bytes()
    assert len(first) < 1_000_000
    assert write_report(folder).read_bytes() == first


def test_many_different_failures_do_not_swell_the_page(tmp_path: Path) -> None:
    failed = {f"client-{number}": "x" * number for number in range(2000)}
    event = {"event": "exchange", "round": 1, "kind": "train", "failed": failed}
    path = write_report(folder_with(tmp_path, [event]))
    assert "1800 more rows are in events.jsonl" in Page(path).text
    assert path.stat().st_size < 200_000


def test_summary_table_is_short_and_plain(tmp_path: Path) -> None:
    folder = folder_with(tmp_path, run_events(KEYS, 10, 4))
    lines = dict(line.split("  ", 1) for line in summary_table(folder).splitlines())
    table = {name: value.strip() for name, value in lines.items()}
    assert table["ended"] == "completed"
    assert table["rounds"] == "10 in 1 min 5 s"
    assert (
        table["final accuracy"]
        == table["best accuracy"]
        == "95.0 % on the server's test data (round 10)"
    )
    assert table["bytes down"] == "40.0 kB to clients"
    assert table["bytes selecting"].startswith("70.0 kB of questions to clients, ")
    assert table["clients chosen"].endswith(" of 20")
    assert table["failures"] == "2 failed, 2 late"
    assert table["quarantined"] == "0"
    assert table["report"] == "not written"
    write_report(folder)
    assert summary_table(folder).endswith(str(folder.report_path))


def test_best_accuracy_is_the_first_of_equals() -> None:
    values = enumerate([0.1, 0.8, 0.6, 0.8, 0.7])
    events = [{"event": "evaluated", "round": r, "accuracy": a} for r, a in values]
    assert last_and_best(History.from_events(events)) == ((4, 0.7), (1, 0.8))


def test_participation_counts_those_never_chosen() -> None:
    events = [
        {"event": "selected", "round": 1, "phase": "train", "available": 5, "chosen": ["a", "b"]},
        {"event": "selected", "round": 2, "phase": "train", "chosen": ["a", "a"]},
        {"event": "selected", "round": 2, "phase": "evaluate", "chosen": ["c"]},
    ]
    history = History.from_events(events)
    assert history.participation() == [2, 1, 0, 0, 0]
    assert history.clients == ["a", "b", "c"]
    assert jain_index(history.participation()) == pytest.approx(9 / 25)


def test_a_resumed_runs_clock_is_not_that_of_its_last_leg() -> None:
    events = [{"event": "round-finished", "round": r, "seconds": 10.0} for r in range(1, 5)]
    events.append({"event": "run-finished", "seconds": 20.0, "rounds": 4})
    assert History.from_events(events).seconds == 40.0


def test_natural_order_takes_any_digits() -> None:
    assert sorted(["a10", "a2"], key=natural_order) == ["a2", "a10"]
    assert sorted(["9" * 5000, "10", "9"], key=natural_order) == ["9", "10", "9" * 5000]


@pytest.mark.parametrize(
    ("count", "text"), [(0, "0 B"), (999, "999 B"), (999_600, "1000 kB"), (12_340_000, "12.3 MB")]
)
def test_bytes_are_readable(count: int, text: str) -> None:
    assert data_size(count) == text


def test_durations_do_not_show_sixty_seconds() -> None:
    assert [duration(s) for s in (59.96, 119.7, 3599.9)] == ["1 min 0 s", "2 min 0 s", "1 h 0 min"]


def test_shortened_text_is_one_harmless_line() -> None:
    assert shorten("a\u202eb\n  c", 10) == "a�b c"


def test_the_command_gives_back_every_value() -> None:
    overrides = {
        "strategy": "cosage",
        "text": 'it\'s "q" $HOME `x` \\n!',
        "path": "C:\\data dir",
        "empty": "",
        "lines": "a\nb\tc",
        "cosage": {"silent-ratio": 1e-05},
        "rounds": 3,
        "quiet": True,
        "unset": None,
    }
    words = shlex.split(run_command(overrides))
    assert words[:4] == ["flwr", "run", ".", "-c"]
    del overrides["unset"]
    assert flower_reads(words[4]) == overrides


def flower_reads(argument: str) -> dict[str, Any]:
    from flwr.common.config import parse_config_args

    return parse_config_args([argument], flatten=False)


def test_matplotlib_is_not_loaded_before_a_report_is_drawn() -> None:
    program = "import sys, forager.tools.report; print('matplotlib' in sys.modules)"
    command = [sys.executable, "-c", program]
    path = {"PYTHONPATH": ":".join(sys.path)}
    result = subprocess.run(command, capture_output=True, text=True, check=True, env=path)
    assert result.stdout.strip() == "False"
