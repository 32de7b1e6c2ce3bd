"""What is remembered of streams while clients are away."""

from forager.strategies.federation.stream_profiles import AWAY, StreamProfiles


def test_velocities_are_averaged_and_kept_for_some_rounds() -> None:
    profiles = StreamProfiles()
    profiles.advance(1, ["a", "b"])
    profiles.hear("a", {"velocity": [4.0, 0.0], "capacity": 6})
    profiles.hear("a", {"velocity": [2.0, 0.0], "capacity": 6})
    assert profiles.velocities() == {"a": [3.0, 0.0]}
    assert not profiles.unknown("a", 1)
    assert profiles.unknown("b", 1)
    profiles.advance(AWAY + 1, ["b"])
    assert list(profiles.told) == ["a"]
    profiles.advance(AWAY + 2, ["b"])
    assert not profiles.told
