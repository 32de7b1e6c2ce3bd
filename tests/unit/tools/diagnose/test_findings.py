"""``forager diagnose``: what was planted is found, what cannot be told is said."""

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flwr.app import Message
from forager.benchmarks.attacks import spoiling
from forager.benchmarks.diagnosed import PLANTED
from forager.benchmarks.planted_cases import CASES
from forager.core.log.events import Examined, JudgedBy, RunStarted
from forager.core.tasks import load_task
from forager.core.wire.arrays import from_record, to_record
from forager.core.wire.keys import AGREEMENT, ARRAYS, AS_IT_CAME, LOSS, METRICS, PROBED
from forager.server_app.run_folder import RunFolder, RunFolderError
from forager.tools.cli.app import main
from forager.tools.cli.diagnose import examined
from forager.tools.diagnose import findings as parts
from forager.tools.diagnose.advice import PROFILE, advice, alike_records, diagnose, most_alike
from forager.tools.diagnose.evidence import RunEvidence
from forager.tools.diagnose.findings import Finding, findings
from forager.tools.engine.local import run_local

ROUNDS = 12
WAYS = [(planted, way) for planted, ways in CASES.items() for way in ways]


def run(place: Path, rounds: int = ROUNDS, **settings: Any) -> RunFolder:
    load_task.cache_clear()  # data may have drifted
    keys = {name.replace("__", ".").replace("_", "-"): value for name, value in settings.items()}
    own = {"num-clients": 20, "report": False, "checkpoint.every": 0, "output-dir": str(place)}
    return RunFolder.open(run_local(examined({**own, **keys}, rounds)).folder)


def seen(place: Path, rounds: int = ROUNDS, **settings: Any) -> RunEvidence:
    return RunEvidence.of(run(place, rounds, **settings).read_events())


def found(lines: dict[str, Finding]) -> set[str]:
    return {name for name, finding in lines.items() if finding.found}


@pytest.mark.parametrize(("planted", "way"), WAYS)
def test_what_was_planted_is_found(planted: str, way: str, tmp_path: Path) -> None:
    lines = findings(seen(tmp_path, seed=7, **_python(CASES[planted][way])))
    if planted == "plain":
        assert found(lines) == set()
    else:
        assert PLANTED[planted] in found(lines)


def _python(settings: dict[str, Any]) -> dict[str, Any]:
    return {key.replace(".", "__").replace("-", "_"): v for key, v in settings.items()}


def test_it_says_whose_labels_are_wrong_and_whose_data_changed(tmp_path: Path) -> None:
    config = _python(CASES["drifting"]["labels move on"])
    changed = findings(seen(tmp_path / "a", seed=7, **config))["drift"].clients
    assert set(changed) <= {str(number) for number in range(1, 20, 2)}
    assert len(changed) >= 8
    assert set(changed.values()) == {7}


def test_clients_whose_data_change_unnoticed_are_no_group(tmp_path: Path) -> None:
    config = _python(CASES["drifting"]["labels move on"])
    assert "groups" not in found(findings(seen(tmp_path, seed=0, task="blobs", **config)))


LIES: tuple[Any, ...] = (1e300, [0.5, 0.5], None, -1.0)  # of clients 0, 5, 10 and 15


def test_clients_that_answer_nonsense_spoil_no_finding(tmp_path: Path) -> None:
    """Four of twenty: what they claim is left out, and what they did to the bias counts little."""

    def spoil(before: dict[str, Any], reply: Message) -> None:
        told, lie = reply.content.metric_records[METRICS], LIES[reply.metadata.src_node_id % 4]
        for name in {LOSS, AGREEMENT, PROBED, AS_IT_CAME}.intersection(told):
            del told[name]
            if lie is not None:
                told[name] = lie
        if before:
            after = from_record(reply.content.array_records[ARRAYS])
            last = list(after)[-1]
            turned = after[last] + np.eye(len(after[last]), dtype=np.float32)[0]
            reply.content[ARRAYS] = to_record({**after, last: turned})

    with spoiling("train", spoil), spoiling("evaluate", spoil):
        (plain, *_) = CASES["plain"].values()
        lines = findings(seen(tmp_path, seed=7, **_python(plain)))
    assert not [line for line in lines.values() if line.text.startswith("left out")]
    assert not found(lines) & {"label skew", "doubtful labels", "own models"}


def test_one_client_and_a_few_are_too_few(tmp_path: Path) -> None:
    alone = findings(seen(tmp_path / "a", 4, num_clients=1))
    assert found(alone) == set()
    assert "clients seen: 1; needed: 8" in alone["label skew"].text
    five = findings(seen(tmp_path / "b", 4, num_clients=5))
    for name in ("label skew", "groups", "doubtful labels", "drift"):
        assert five[name].found is None
        assert "clients seen: 5; needed: 8" in five[name].text


def test_the_gain_of_own_models_is_in_the_unit_of_the_metric_with_its_threshold() -> None:
    def line(name: str, share: bool, gains: tuple[float, float]) -> Finding:
        judged = JudgedBy(name=name, higher_is_better=share, share=share)
        served = [0.5 + (gain if share else -gain) for gain in gains]
        own = Examined(clients=["a", "b"], columns={AS_IT_CAME: [0.5, 0.5], "served": served})
        evidence = RunEvidence(started=RunStarted(metrics=[judged]), own=own)
        return parts.own_models(evidence)

    unclear = line("accuracy", True, (0.0, 0.02))
    assert not unclear.found
    assert "improves accuracy by +1.0 points (95 % interval " in unclear.text
    assert unclear.text.endswith("clear if all of the interval is above +1.0")
    error = line("mae", False, (0.0, 0.02))
    assert "improves mae by +0.01 (95 % interval " in error.text
    assert error.text.endswith("above +0.01")
    clear = line("accuracy", True, (0.10, 0.10))
    assert clear.found
    assert (
        clear.text
        == "tuning on own data improves accuracy by +10.0 points (95 % interval +10.0 to +10.0)"
    )


def test_groups_that_are_not_found_come_with_the_limit(tmp_path: Path) -> None:
    (plain, *_) = CASES["plain"].values()
    text = findings(seen(tmp_path, 4, **_python(plain)))["groups"].text
    assert text.startswith("none: the best split leaves ")
    assert text.endswith(("groups leave at most 15%", "groups less than half of that"))


def test_numbers_as_targets_have_skew_and_no_doubtful_labels(tmp_path: Path) -> None:
    lines = findings(seen(tmp_path, 4, task="diabetes", learning_rate=0.05, num_clients=10))
    assert lines["label skew"].text.removeprefix("none: ").startswith("targets differ")
    assert lines["doubtful labels"].text == "unknown: samples have no classes"


def test_without_held_out_or_clean_data_it_says_what_it_cannot_decide(tmp_path: Path) -> None:
    settings = {"data__client_test_share": 0.0, "fraction_evaluate": 0.0}
    lines = findings(seen(tmp_path, 4, data__validation_share=0.0, **settings))
    assert "hold no data out" in lines["own models"].text
    assert "no clean samples" in lines["doubtful labels"].text
    assert lines["label skew"].found is not None


def test_a_part_that_fails_is_left_out_and_the_others_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(evidence: RunEvidence) -> Finding:
        raise ZeroDivisionError("nothing there")

    monkeypatch.setitem(parts.PARTS, "groups", broken)
    lines = findings(seen(tmp_path, 4))
    assert lines["groups"].text == "left out: ZeroDivisionError: nothing there"
    assert lines["label skew"].found


def test_what_clients_send_instead_of_numbers_is_left_out(tmp_path: Path) -> None:
    events = run(tmp_path, 4).read_events()
    for event in events:
        if event["event"] == "examined":
            event["columns"] = {name: [["x"]] * 20 for name in event["columns"]}
    lines = findings(RunEvidence.of(events), 0.9)
    assert found(lines) <= {"slow or away"}


def test_a_budget_of_bytes_is_kept_and_one_of_seconds_ends_the_run(tmp_path: Path) -> None:
    most = 300_000
    folder = run(tmp_path / "a", 4, diagnose__bytes=most)
    told = [event for event in folder.read_events() if event["event"] == "exchange"]
    spent = sum(event.get("bytes-down", 0) + event.get("bytes-up", 0) for event in told)
    assert 0 < spent <= most
    clients = RunEvidence.of(folder.read_events()).rounds[0].clients
    assert 1 < len(clients) < 20
    slow = seen(tmp_path / "b", 6, devices__slow=True, diagnose__seconds=20.0)
    assert 1 <= len(slow.rounds) < 6


def test_the_command_prints_ten_lines_and_writes_a_page(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["diagnose", "--local", "-c", "num-clients=9 strategy='ios'", "--rounds", "4"]) == 0
    told = capsys.readouterr().out
    assert "label skew " in told
    assert 'run -c "num-clients=9 strategy=' in told
    (compare,) = (line for line in told.splitlines() if " compare " in line)
    assert compare.startswith("to settle it ")  # the run itself suggests none
    assert "forager diagnose runs/" in told
    (page,) = Path("runs").glob("*/diagnosis.html")
    assert "<h2>Clients</h2>" in page.read_text()
    assert re.search("<b>to settle it</b>: <code>[^<]*forager compare fedavg", page.read_text())
    assert main(["diagnose", "latest", "--target", "0.9"]) == 0
    again = capsys.readouterr().out
    assert "label skew " in again
    assert "0.9 takes" in again


def test_the_command_for_devices_is_shown_and_nothing_runs(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["diagnose", "--show", "-c", "num-clients=9"]) == 0
    told = capsys.readouterr().out
    assert told.startswith("flwr run . -c ")
    assert "data-selector='examined'" in told


def test_a_run_that_was_not_examined_is_refused(tmp_path: Path) -> None:
    result = run_local({"num-server-rounds": 1, "report": False, "output-dir": str(tmp_path)})
    with pytest.raises(RunFolderError, match="data-selector = 'examined'"):
        diagnose(RunFolder.open(result.folder))


def test_privacy_is_not_given_up_to_be_diagnosed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["diagnose", "--local", "-c", "privacy='local-dp'"]) == 2
    assert "privacy" in capsys.readouterr().err


def lines_of(present: Sequence[str], **values: float) -> dict[str, Finding]:
    return {name: Finding("", True, values.get(name.replace(" ", "_"))) for name in present}


def test_the_advice_follows_what_was_found() -> None:
    situation = {"task": "npz", "data.path": "mine.npz", "run-name": "x", "strategy": "ios"}
    nothing = advice({}, situation)
    assert nothing["advice"].endswith(
        "run -c \"task='npz' data.path='mine.npz' strategy='fedavg'\""
    )
    grouped = advice(lines_of(["groups", "slow or away"]), {})
    assert "strategy='forager' round.over-commit=0.2" in grouped["advice"]
    assert '"forager round.over-commit=0.2" --goal clients' in grouped["to settle it"]
    assert "act on groups" in grouped["why"]


def test_what_is_expected_comes_from_the_records_that_look_most_alike() -> None:
    records = alike_records()
    assert len(records) == 8
    for record in records:
        assert most_alike(record["profile"], records)[0] is record
    skewed = {name: Finding("", True, records[0]["profile"][name]) for name in PROFILE}
    told = advice(skewed, {})["expected"]
    assert records[0]["name"] in told
    assert "points over FedAvg" in told
    assert most_alike(dict.fromkeys(PROFILE, 1e6), records) == []


def test_events_of_an_examined_run_are_plain_numbers(tmp_path: Path) -> None:
    folder = run(tmp_path, 2)
    lines = [json.loads(line) for line in (folder.path / "events.jsonl").read_text().splitlines()]
    examined_rounds = [line for line in lines if line["event"] == "examined"]
    assert len(examined_rounds) == 3
    assert examined_rounds[0]["columns"]["probed"][0] > 0
    assert "bias-update" not in examined_rounds[1]["columns"]
    assert set(examined_rounds[2]["columns"]) == {"as-it-came", "served"}
