"""Back-off: who does not answer is asked again ever later."""

_DOUBLINGS = 6


def rest(times: int) -> int:
    """Return for how many rounds somebody is left alone who failed this often in a row."""
    return 1 << min(times - 1, _DOUBLINGS)
