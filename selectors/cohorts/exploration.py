"""How often a client tries another cohort than the one that rewards it most (Auxo, section 4.3)."""

from ..checks import at_least, shares


def exploration_rate(round: int, initial: float = 0.3, decay: float = 0.99) -> float:
    """Return the probability of a random cohort, ``initial * decay ** round``.

    The round is that of the cohort. (Line 29 of algorithm 1, taken literally, explores more and
    more often; according to the text, less and less.)
    """
    at_least(0, round=round)
    shares(initial=initial, decay=decay)
    return initial * decay**round
