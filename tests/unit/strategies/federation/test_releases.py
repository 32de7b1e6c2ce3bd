"""The account of releases."""

from forager.strategies.federation.releases import Releases


def test_releases_are_counted_by_client_and_found_again_in_the_file(tmp_path) -> None:
    releases = Releases(tmp_path / "releases.jsonl")
    releases.charge(1, ["a", "b"])
    releases.charge(2, ["b"])
    assert (releases.most, releases.mean) == (2, 1.5)
    assert Releases(tmp_path / "releases.jsonl").counts == releases.counts


def test_before_the_first_release_nobody_has_one() -> None:
    assert (Releases().most, Releases().mean) == (0, 0.0)
