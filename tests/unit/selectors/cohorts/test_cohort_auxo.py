import copy
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from forager.benchmarks.playground import Playground
from forager.selectors.cohorts.affinity import Affinity, AffinityRecord
from forager.selectors.cohorts.auxo import Auxo
from forager.selectors.cohorts.split import Gain, SplitRule
from sklearn.datasets import make_blobs

EAGER = SplitRule(first_round=0, rounds=1, participants=1, smallest_share=0.0)


def eager(**options: object) -> Auxo:
    """Cohorts that split as soon as they see two groups."""
    return Auxo(**({"parts": 2, "rule": EAGER, "first_cluster_round": 0} | options))  # type: ignore[arg-type]


def two_groups(count: int) -> tuple[list[str], np.ndarray]:
    """Clients whose updates point one way or the other, in turn."""
    ways = np.tile([[1.0, 0.1, 0.0], [0.1, 1.0, 0.0]], (count // 2, 1))
    noise = 0.05 * np.random.default_rng(0).normal(size=ways.shape)
    return [f"c{i}" for i in range(count)], ways + noise


def split_in_two(**options: object) -> tuple[Auxo, list[str], np.ndarray]:
    auxo = eager(**options)
    keys, updates = two_groups(12)
    assert auxo.observe("0", keys, updates, [None] * 12).children == ["0.0", "0.1"]
    return auxo, keys, updates


def requests_of(auxo: Auxo, keys: Sequence[str]) -> list[Affinity | None]:
    """What clients say that have taken in the feedback on its way, and nothing before."""
    found: list[Affinity | None] = []
    for key in keys:
        mine = Affinity()
        mine.learn(auxo.feedback_for(key), auxo.tree)
        found.append(mine)
    return found


def test_feedback_is_kept_until_the_client_has_taken_it_in() -> None:
    auxo, keys, _ = split_in_two()
    assert auxo.feedback_for(keys[0]) is not None
    auxo.match(keys, [None] * 12)
    assert auxo.feedback_for(keys[0]) is not None
    auxo.match(keys, requests_of(auxo, keys))
    assert [auxo.feedback_for(key) for key in keys] == [None] * 12


def test_the_server_has_no_copy_of_what_clients_know() -> None:
    auxo, keys, _ = split_in_two()
    told = requests_of(auxo, keys)
    assert auxo.match(keys, told)
    assert auxo.members(keys) == {"0.0": keys[::2], "0.1": keys[1::2]}
    drawn = [set(auxo.match(keys, [None] * 12)["0.0"]) for _ in range(4)]  # all have lost theirs
    assert any(own != drawn[0] for own in drawn)


def test_a_split_must_leave_the_resources_of_lemma_4_1() -> None:
    """12 participants, of rms difference J_0: each part keeps 6, needs alpha * sqrt(12) / J_0."""
    keys, updates = two_groups(12)
    unit = updates / np.linalg.norm(updates, axis=1, keepdims=True)
    apart = np.sqrt(np.mean(np.sum((unit - unit.mean(axis=0)) ** 2, axis=1)))
    limit = 6 * apart / np.sqrt(12)
    for alpha, parts in ((0.99 * limit, 2), (1.01 * limit, 0)):
        auxo = eager(rule=replace(EAGER, alpha=alpha))
        assert len(auxo.observe("0", keys, updates, [None] * 12).children) == parts


def test_members_go_to_their_side_and_the_others_anywhere() -> None:
    auxo, keys, _ = split_in_two()
    assert auxo.members(keys) == {"0.0": keys[::2], "0.1": keys[1::2]}
    new = [f"new{i}" for i in range(400)]
    assert 140 < len(auxo.members(new)["0.0"]) < 260
    assert auxo.members(new) == auxo.members(new)
    told = requests_of(auxo, keys)
    matched = auxo.match(keys * 50, told * 50)
    explorers = [key for key in matched["0.0"] if key in keys[1::2]]
    assert 0.08 < len(explorers) / 300 < 0.24  # half of the 30 % that explore


def test_outsiders_are_rewarded_less_than_members() -> None:
    auxo, keys, updates = split_in_two()
    guests = [*keys[:8:2], keys[1]]
    told = requests_of(auxo, guests)
    rewards = auxo.observe("0.0", guests, updates[[0, 2, 4, 6, 1]], told).feedback
    assert rewards[keys[1]].reward < 0 < min(rewards[key].reward for key in keys[:8:2])
    assert rewards[keys[1]].cohort == "0.0"


def test_who_just_tries_a_cohort_is_no_cluster_of_it() -> None:
    """Else guests and members would be told apart, and the cohort split between them."""
    auxo, keys, updates = split_in_two(rule=replace(EAGER, smallest_share=0.3))
    updates[::2] = [1.0, 0.1, 0.0]
    seen = auxo.observe("0.0", keys, updates, requests_of(auxo, keys))
    assert seen.children == []
    assert {seen.feedback[guest].index for guest in keys[1::2]} == {-1}


def test_there_are_no_rewards_while_there_is_one_cohort() -> None:
    auxo = Auxo()
    keys, updates = two_groups(6)
    feedback = auxo.observe("0", keys, updates, [Affinity()] * 6).feedback
    assert all(np.isnan(one.reward) and one.index == -1 for one in feedback.values())
    assert auxo.round_of("0") == 1


def test_children_count_on_from_the_round_of_their_parent() -> None:
    auxo, keys, updates = split_in_two()
    auxo.observe("0.1", keys[1:4:2], updates[1:4:2], [None] * 2)
    assert (auxo.round_of("0.0"), auxo.round_of("0.1")) == (1, 2)


def test_a_run_that_was_stopped_continues_identically() -> None:
    points, _ = make_blobs(100, 16, centers=3, cluster_std=2.0, random_state=1)
    whole = Playground(Auxo(rule=SplitRule(first_round=6)), points)
    whole.play(rounds=12, participants=40)
    stopped = copy.deepcopy(whole)
    stopped.auxo = Auxo(rule=SplitRule(first_round=6), seed=99)
    stopped.auxo.load_state_dict(whole.auxo.state_dict())
    for ground in (whole, stopped):
        ground.play(rounds=12, participants=40)
    assert len(whole.auxo.leaves()) > 1
    np.testing.assert_equal(stopped.auxo.state_dict(), whole.auxo.state_dict())


def test_k_of_one_never_splits() -> None:
    auxo = eager(parts=1)
    keys, updates = two_groups(12)
    for _ in range(5):
        seen = auxo.observe("0", keys, updates, [None] * 12)
    assert seen.children == []
    assert auxo.match(keys, [None] * 12) == {"0": keys}


@pytest.mark.parametrize("updates", [np.ones((12, 3)), np.zeros((12, 3))])
def test_identical_and_zero_updates_are_no_reason_to_split(updates: np.ndarray) -> None:
    auxo, keys = eager(), [f"c{i}" for i in range(12)]
    for _ in range(4):
        assert auxo.observe("0", keys, updates, [None] * 12).children == []


def test_zero_updates_among_others_are_put_up_with() -> None:
    auxo, keys, updates = split_in_two()
    seen = auxo.observe("0.0", keys, np.vstack([updates[:10], np.zeros((2, 3))]), [None] * 12)
    assert all(np.isfinite(one.reward) for one in seen.feedback.values())
    assert seen.feedback[keys[11]].index == -1


def test_one_client_nobody_and_fewer_than_cohorts() -> None:
    auxo, keys, updates = split_in_two()
    nobody = auxo.observe("0.0", [], np.empty((0, 3)), [])
    assert (nobody.feedback, nobody.gain) == ({}, Gain(0.0, 0.0, 0, 0.0))
    assert auxo.round_of("0.0") == 1
    alone = auxo.observe("0.0", keys[:1], updates[:1], [None])
    assert alone.feedback[keys[0]].reward == 1.0  # it is the centre
    assert sum(len(group) for group in auxo.match(keys[:1], [None]).values()) == 1
    assert Auxo().observe("0", ["only"], [[1.0, 2.0]], [None]).children == []


def test_a_cohort_whose_members_left_takes_in_new_ones() -> None:
    auxo, keys, updates = split_in_two()
    left = [key for key in keys if key not in keys[::2]]
    assert auxo.members(left)["0.0"] == []
    new = [f"new{i}" for i in range(6)]
    seen = auxo.observe("0.0", new, updates[::2], [Affinity() for _ in new])
    assert all(np.isfinite(one.reward) for one in seen.feedback.values())
    assert seen.strange == []


def test_a_cohort_that_never_existed_is_reported_and_does_no_harm() -> None:
    auxo, keys, updates = split_in_two()
    odd = Affinity(
        {
            "0.7": AffinityRecord(99.0, 3, True),
            "nonsense": AffinityRecord(),
            "0.1": AffinityRecord(0.3),
        }
    )
    seen = auxo.observe("0.1", keys[1:3], updates[1:3], [odd, Affinity()])
    assert seen.strange == [keys[1]]
    assert keys[1] in auxo.members(keys)["0.1"]


def test_a_request_that_does_not_know_of_the_split_goes_to_its_side() -> None:
    """They were away when their cohort was split."""
    auxo, _, _ = split_in_two(exploration=0.0)
    away = [f"away{i}" for i in range(6)]
    requests = [Affinity({"0": AffinityRecord(index=i % 2, known=True)}) for i in range(6)]
    assert auxo.match(away, requests) == {"0.0": away[::2], "0.1": away[1::2]}
    assert auxo.members(away) == {"0.0": away[::2], "0.1": away[1::2]}


def test_what_cannot_be_observed_is_refused() -> None:
    auxo, keys, updates = split_in_two()
    before = copy.deepcopy(auxo.state_dict())
    with pytest.raises(ValueError, match=r"leaf: expected one of 0\.0, 0\.1, got '0'"):
        auxo.observe("0", keys, updates, [None] * 12)
    with pytest.raises(ValueError, match="one per key"):
        auxo.observe("0.0", keys, updates, [None])
    with pytest.raises(ValueError, match="no key twice"):
        auxo.observe("0.0", ["a", "a"], updates[:2], [None] * 2)
    with pytest.raises(ValueError, match="finite"):
        auxo.observe("0.0", ["a"], [[np.nan, 0.0, 0.0]], [None])
    np.testing.assert_equal(auxo.state_dict(), before)
    auxo.observe("0.0", keys[::2], updates[::2], requests_of(auxo, keys[::2]))
    with pytest.raises(ValueError, match=r"dimension \{3\}, got 2"):
        auxo.observe("0.0", ["a"], [[1.0, 0.0]], [None])


def test_a_checkpoint_of_another_tree_is_refused() -> None:
    auxo, _, _ = split_in_two()
    state, other = auxo.state_dict(), Auxo()
    with pytest.raises(ValueError, match=r"leaves \['0'\]"):
        other.load_state_dict(state | {"tree": {"leaves": ["0"]}})
    with pytest.raises(ValueError, match=r"clients are in \['0'\]"):
        other.load_state_dict(state | {"where": {"a": "0"}})
    assert other.leaves() == ["0"]


def test_settings_that_make_no_sense_are_refused() -> None:
    bad = {"parts": 0, "exploration": 1.5, "rate": -1, "retry": 0, "margin": -1, "strikes": -1}
    for name, value in bad.items():
        with pytest.raises(ValueError, match=f"{name}|initial"):
            Auxo(**{name: value})  # type: ignore[arg-type]
