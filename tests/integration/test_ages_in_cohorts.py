"""Ages belong to the client, whichever cohort it trained with."""

import json
from collections import Counter
from pathlib import Path

from forager.tools.engine.local import run_local


def test_ages_count_rounds_since_a_client_trained_in_any_cohort(tmp_path: Path) -> None:
    keys = {"cohorts": "auxo", "client-selector": "cosage", "groups.kind": "label-permutation"}
    keys |= {"auxo.first-clustering": 2, "auxo.first-split": 4, "auxo.min-participants": 3}
    size = {"num-clients": 20, "clients-per-round": 10, "num-server-rounds": 20, "partition": "iid"}
    quiet = {"output-dir": str(tmp_path), "report": False, "checkpoint.every": 0}
    folder = run_local({**keys, **size, **quiet}).folder
    lines = map(json.loads, (folder / "events.jsonl").read_text().splitlines())
    chosen = [e for e in lines if e["event"] == "selected" and e["phase"] == "train"]
    cohorts = {e.get("cohort") for e in chosen}
    assert len(cohorts) > 2, "it has to split for the question to arise"
    last: Counter[str] = Counter()
    for event in chosen:
        trained = dict.fromkeys(event["chosen"], event["round"])
        assert event["ages"] == [event["round"] - 1 - last[key] for key in trained], event
        last.update({key: event["round"] - last[key] for key in trained})
