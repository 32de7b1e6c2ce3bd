"""Which versions of the app and of what it needs run here, for both sides to compare."""

from collections.abc import Sequence
from functools import lru_cache
from importlib.metadata import PackageNotFoundError, version

from ... import __version__

_APP = "forager"
_PACKAGES = ("flwr", "numpy", "torch")
_MOST = 20  # entries that are looked at


@lru_cache(maxsize=1)
def versions() -> list[str]:
    """Return names and versions, the app's first; builds of one version count as the same.

    >>> [line.split()[0] for line in versions()]
    ['forager', 'flwr', 'numpy', 'torch']
    """
    found = {_APP: __version__}  # which travels with a run, and need not be what is installed
    for package in _PACKAGES:
        try:
            found[package] = version(package).partition("+")[0]
        except PackageNotFoundError:
            found[package] = "none"
    return [f"{name} {number}" for name, number in found.items()]


def differences(theirs: object, ours: Sequence[str] = ()) -> str:
    """Return in which versions a client differs from us, as a text; nothing if in none.

    >>> differences(["forager 0.1.0", "torch 2.1"], ours=["forager 0.2.0", "torch 2.1"])
    'has forager 0.1.0 instead of 0.2.0'
    >>> differences(None)
    'does not say its version: its app is an older one'
    """
    if not isinstance(theirs, list) or not all(isinstance(text, str) for text in theirs):
        return "does not say its version: its app is an older one"
    said = dict(text[:80].split(" ", 1) for text in theirs[:_MOST] if " " in text[:80])
    pairs = [text.split(" ", 1) for text in ours or versions()]
    other = [
        f"{name} {said.get(name, 'none')} instead of {mine}"
        for name, mine in pairs
        if said.get(name) != mine
    ]
    return f"has {', '.join(other)}" if other else ""
