"""What runs write down is what the report's pictures read: nothing here is made up."""

import pytest
from forager.core.log.events import StoragePlanned
from forager.server_app.run_folder import RunFolder
from forager.tools.engine.local import run_local
from forager.tools.report.choice_charts import choices
from forager.tools.report.class_charts import stores_sentence
from forager.tools.report.cohort_charts import cohorts_sentence
from forager.tools.report.coreset_charts import clean_shares, coresets_sentence
from forager.tools.report.history import History
from forager.tools.report.member_charts import agreement_sentence
from forager.tools.report.page import chapters

GENERAL = {
    *("metric-accuracy", "loss", "participation", "choices", "bytes", "seconds", "classes"),
}


@pytest.fixture
def small(tmp_path):
    return {
        "output-dir": str(tmp_path / "runs"),
        "report": False,
        "num-server-rounds": 6,
        "num-clients": 6,
        "clients-per-round": 6,
        "data.cache-dir": str(tmp_path / "cache"),
    }


def drawn(keys):
    history = History.from_events(RunFolder(run_local(keys).folder).read_events())
    plots = [picture.draw(history) for _, pictures in chapters(history) for picture in pictures]
    return {plot.name: plot for plot in plots if plot is not None}, history


def test_a_plain_run_has_the_general_pictures_only(small):
    pictures, _ = drawn(small)
    assert set(pictures) == GENERAL


def test_coresets(small):
    noise = {"noise": "closed-set", "corruption.rate": 0.4, "coreset.every": 3}
    pictures, history = drawn({**small, "strategy": "trusted", **noise})
    assert set(pictures) - GENERAL == {"coreset-samples", "clean", "coreset-classes"}
    assert len(clean_shares(history)) == 6
    assert "against 60.0 % of all their data" in coresets_sentence(history)
    parts = pictures["coreset-samples"].hover["lines"]
    assert parts["at random"][1][0] > 0 == parts["at random"][1][1]
    assert parts["chosen in this round"][1][1] > 0
    classes = pictures["coreset-classes"].hover["values"]
    sizes = sum(row[-1] for row in classes)
    assert sizes == sum(part[1][-1] for part in parts.values())  # everybody took part


def test_stores(small):
    pictures, history = drawn({**small, "strategy": "ode-balanced"})
    assert set(pictures) - GENERAL == {"stores", "plan"}
    planned = sum(map(sum, pictures["plan"].hover["values"]))
    assert planned == sum(history.last(StoragePlanned).stored)
    assert "the clients' stores hold" in stores_sentence(history)
    stored = [row[-1] for row in pictures["stores"].hover["values"]]
    assert 0 < sum(stored) <= 6 * 10
    assert len(stored) == 10


@pytest.mark.parametrize("tested", [0.0, 1.0])
def test_cohorts(small, tested):
    groups = {"groups.kind": "label-permutation", "groups.count": 2, "cohort.number": 2}
    own = {"fraction-evaluate": tested, "data.client-test-share": 0.2}
    pictures, history = drawn({**small, **groups, **own, "cohorts": "ifca", "partition": "iid"})
    assert set(pictures) - GENERAL - {"members"} == {"cohorts", "cohort-metric"}
    sizes = [values[-1] for _, values in pictures["cohorts"].hover["lines"].values()]
    assert sum(sizes) == 6
    assert ("with their models" in cohorts_sentence(history)) == (len(sizes) > 1)
    assert "have 2 planted groups" in agreement_sentence(history)
    own_data = history.score_column == "clients-accuracy-mean"
    assert own_data == (tested > 0)


def test_cosage(small):
    pictures, history = drawn({**small, "strategy": "cosage", "clients-per-round": 3})
    assert set(pictures) - GENERAL == {"why-chosen", "candidates"}
    assert set(pictures["why-chosen"].hover["lines"]) == {"bin 1", "bin 2", "bin 3"}
    last = choices(history)[6]
    assert sorted(choice.client for choice in last) == sorted(history.chosen[6])


def test_slow_devices(small):
    slow = {"devices.slow": True, "round.over-commit": 0.5, "clients-per-round": 3}
    pictures, _ = drawn({**small, **slow})
    assert set(pictures) - GENERAL == {"slow", "troubles"}
    told = pictures["slow"].hover["lines"]
    slowest, middle = told["slowest reply"][1], told["median"][1]
    assert all(a >= b for a, b in zip(slowest, middle, strict=True))
