"""Labels that the global model confirms."""

import numpy as np
from forager.selectors.data_selectors.confirmed_labels import LabelDoubt, blend, label_weights


def _heard(agreements: list[float], accuracy: float, rounds: int = 8) -> LabelDoubt:
    doubt = LabelDoubt()
    for _ in range(rounds):
        doubt.hear(agreements, accuracy)
    return doubt


def test_wrong_labels_are_found_and_their_share_estimated():
    doubt = _heard([0.53, 0.54, 0.55], 0.9)
    assert doubt.found
    assert abs(doubt.wrong - 0.4) < 0.03


def test_clean_labels_of_a_poor_model_are_not_doubted():
    assert not _heard([0.5, 0.52, 0.55, 0.45], 0.52).found


def test_a_model_that_has_learned_nothing_has_no_opinion():
    assert not _heard([0.05, 0.05, 0.05], 0.2).found


def test_two_groups_whose_labels_mean_different_things_are_no_wrong_labels():
    assert not _heard([0.9, 0.1, 0.88, 0.12, 0.91, 0.08], 0.9).found


def test_half_of_the_clients_cannot_switch_it_on_by_lying():
    assert not _heard([0.0] * 5 + [0.85] * 5, 0.85).found


def test_one_bad_round_is_not_enough():
    doubt = LabelDoubt()
    for share in (0.9, 0.9, 0.4, 0.9, 0.4, 0.9, 0.9):
        doubt.hear([share] * 3, 0.9)
    assert not doubt.found


def test_too_few_clients_decide_nothing():
    assert not _heard([0.3, 0.3], 0.9).found


def test_it_continues_after_a_save():
    one = _heard([0.5] * 3, 0.9, rounds=4)
    other = LabelDoubt()
    other.load_state_dict(one.state_dict())
    assert other.hear([0.5] * 3, 0.9)
    assert one.hear([0.5] * 3, 0.9)


def test_a_label_that_the_model_finds_likeliest_counts_fully():
    predictions = np.array([[0.7, 0.2, 0.1], [0.0, 0.0, 1.0]])
    assert label_weights(predictions, [0, 0], 2.0).tolist() == [1.0, 0.0]


def test_blending_leaves_out_doubtful_partners_and_does_without_any_trust():
    others, labels = blend(np.array([1.0, 0.0, 1.0, 0.0]), np.random.default_rng(1))
    assert set(others) <= {0, 2}
    assert ((labels == np.arange(4)) | (labels == others)).all()
    assert len(blend(np.zeros(3), np.random.default_rng(1))[0]) == 3
