import numpy as np
import pytest
from forager.tools.engine.availability import DAY, Availability
from forager.tools.engine.simulated_transport import DeviceSpeeds


def test_a_given_trace_repeats() -> None:
    trace = Availability(3, [2, 0, 2], [10, 20, 70], [30, 40, 100], period=100)
    for time, there in [(5, []), (15, [2]), (25, [0, 2]), (30, [0]), (99, [2]), (100, [])]:
        assert np.flatnonzero(trace.available(time)).tolist() == there
        assert np.flatnonzero(trace.available(time + 700)).tolist() == there
    assert trace.seconds_left(125).tolist() == [15, 0, 5]
    assert trace.next_arrival(15) == 20
    assert trace.next_arrival(70) == 110  # the one that starts now is there already


def test_who_stays_over_the_end_is_not_gone_at_midnight() -> None:
    trace = Availability(1, [0, 0], [0, 90], [5, 100], period=100)
    assert trace.seconds_left(95).tolist() == [10]
    assert trace.seconds_left(100).tolist() == [5]


def test_nights_are_busier_than_days_and_a_seed_fixes_it() -> None:
    trace = Availability.day_and_night(2000, seed=1, days=3)
    shares = [trace.available(hour * 3600).mean() for hour in range(72)]
    by_hour = np.reshape(shares, (3, 24)).mean(axis=0)
    assert by_hour[1:4].min() > 0.4
    assert by_hour[11:16].max() < 0.05
    assert np.mean(shares) == pytest.approx(0.7 * 6 / 24, rel=0.1)
    again = Availability.day_and_night(2000, seed=1, days=3)
    np.testing.assert_array_equal(again.available(3600), trace.available(3600))
    other = Availability.day_and_night(2000, seed=2, days=3)
    assert not np.array_equal(other.available(3600), trace.available(3600))


def test_nobody_ever() -> None:
    trace = Availability(5, [], [], [], period=100)
    assert not trace.available(0).any()
    assert trace.next_arrival(0) is None
    assert Availability.day_and_night(0).available(DAY).tolist() == []


def test_traces_that_make_no_sense_are_refused() -> None:
    for bad in (([3], [0], [1]), ([0], [5], [5]), ([0], [5], [101]), ([0], [-1], [5])):
        with pytest.raises(ValueError, match=r"owner|start, end"):
            Availability(3, *bad, period=100)
    with pytest.raises(ValueError, match="trace"):
        Availability(3, [0], [0, 1], [2, 3], period=100)


def test_a_round_takes_computing_and_both_ways_of_the_transfer() -> None:
    speeds = DeviceSpeeds([0.01, 0.1, 1.0], [100.0, 1000.0, 10.0])
    seconds = speeds.round_seconds([2, 0], samples=[5, 100], down=1000, up=[0, 500])
    assert seconds.tolist() == [5 + 100, 1 + 15]
    with pytest.raises(IndexError):
        speeds.round_seconds([3], 1, 1, 1)


def test_drawn_speeds_are_seeded_spread_and_around_their_median() -> None:
    speeds = DeviceSpeeds.drawn(5000, seed=1, seconds_per_sample=0.5, spread=0.8)
    assert np.median(speeds.seconds_per_sample) == pytest.approx(0.5, rel=0.1)
    assert np.log(speeds.bytes_per_second).std() == pytest.approx(0.8, rel=0.1)
    same = DeviceSpeeds.drawn(5000, seed=1, seconds_per_sample=0.5, spread=0.8)
    np.testing.assert_array_equal(same.bytes_per_second, speeds.bytes_per_second)
    with pytest.raises(ValueError, match="positive"):
        DeviceSpeeds([0.0], [1.0])
