"""How long clients take, and who rests for being late."""

import math

from forager.strategies.federation.client_memory import ResponseTimes


def test_a_late_reply_counts_twice_its_wait_until_it_comes_and_its_client_rests() -> None:
    times = ResponseTimes(longest=10.0)
    times.replied("a", 4.0, 1)
    times.late("b", 10.0, 1)
    assert times.seconds(["a", "b"]).tolist() == [4.0, 20.0]
    assert math.isnan(times.seconds(["c"])[0])
    times.came_late("b", 12.5, 1)
    assert times.seconds(["b"]).tolist() == [12.5]
    assert times.failures(["a", "b", "c"]).tolist() == [0.0, 0.3, 0.0]
    assert [times.rests("b", server_round) for server_round in (2, 3)] == [True, False]
