"""What a node says of itself: its versions, for both sides to compare, and its tags."""

import re
from collections.abc import Sequence
from functools import lru_cache
from importlib.metadata import PackageNotFoundError, version

from ... import __version__

_APP = "forager"
_PACKAGES = ("flwr", "numpy", "torch")
_MOST = 20  # entries that are looked at
_FIRST_HTTP = (1, 40)  # the first version of Flower whose SuperNodes do not speak gRPC


@lru_cache(maxsize=1)
def versions() -> list[str]:
    """Return names and versions, the app's first; builds of one version count as the same."""
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


def flower_version() -> str:
    """Return the version of Flower that is installed here."""
    return version("flwr")


def nodes_speak(flower: str = "") -> str:
    """Return how SuperNodes of a version of Flower, by default the one here, reach a SuperLink."""
    numbers = tuple(int(digits) for digits in re.findall(r"\d+", flower or flower_version()))
    return "HTTP" if numbers[:2] >= _FIRST_HTTP else "gRPC"


def why_nobody_connects(flower: str = "") -> str:
    """Return which SuperNodes can reach a server with a version of Flower, and what to check."""
    here = flower or flower_version()
    if nodes_speak(here) == "gRPC":
        who = (
            "SuperNodes up to 1.39 reach it, by gRPC at the SuperLink's --fleet-api-address (port "
            "9092); newer ones speak HTTP and do not"
        )
    else:
        who = (
            "SuperNodes from 1.40 on reach it, by HTTP at the SuperLink's --host and --port (8000);"
            " older ones speak gRPC and do not, unless the SuperLink was started with "
            "FLWR_INTERNAL_GRPC_FLEET_API=1 in its environment"
        )
    return (
        f"no SuperNode is connected. This server has flwr {here}: {who}. Look at a device's log; "
        "`forager doctor --server HOST:PORT` on the device tells what answers there"
    )


_TAG = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.:=-]{0,62}")
ALLOWED = (
    "tags are separated by commas; each has at most 63 letters, digits and any of _ . : = -, and "
    "begins with a letter or digit, such as 'gpu,site-a'"
)


def read_tags(text: str) -> list[str]:
    """Return the tags in a text, each once.

    >>> read_tags("gpu, site-a,gpu"), read_tags("")
    (['gpu', 'site-a'], [])
    >>> read_tags("gpu,,site a")
    Traceback (most recent call last):
    ValueError: '' is not a tag: tags are separated by commas; ...
    """
    tags = [tag.strip() for tag in text.split(",")] if text.strip() else []
    for tag in tags:
        if not _TAG.fullmatch(tag):
            raise ValueError(f"{tag!r} is not a tag: {ALLOWED}")
    return list(dict.fromkeys(tags))
