"""Who may take part: the clients that a run names, or whose nodes have one of its tags."""

from collections.abc import Collection

_MOST_SHOWN = 5  # tags of a client in one line of the log


class Admission:
    """What a run asks of its clients.

    Collections that are empty let everyone in. A node needs one of the tags.
    """

    def __init__(self, allowed: Collection[str] = (), tags: Collection[str] = ()) -> None:
        self.allowed = frozenset(allowed)
        self.tags = tuple(tags)

    def __str__(self) -> str:
        """Return it as it stands in a run config, names up to five.

        >>> print(Admission(allowed=["camera-1"], tags=["gpu", "site-a"]))
        clients.allowed = 'camera-1' and clients.tags = 'gpu,site-a'
        """
        names = sorted(self.allowed)
        more = ",..." if len(names) > _MOST_SHOWN else ""
        named = f"clients.allowed = '{','.join(names[:_MOST_SHOWN])}{more}'" if names else ""
        tagged = f"clients.tags = '{','.join(self.tags)}'" if self.tags else ""
        return " and ".join(filter(None, [named, tagged]))

    def is_open(self) -> bool:
        """Return whether everyone may take part."""
        return not self.allowed and not self.tags

    def refusal(self, key: str, tags: Collection[str] | None) -> str:
        """Return why a client may not take part; nothing if it may.

        ``tags`` are those of its node; None as long as it has not said them.

        >>> site = Admission(tags=["site-a", "site-b"])
        >>> site.refusal("camera-1", ["gpu", "site-b"])
        ''
        >>> site.refusal("camera-2", ["gpu"])
        "has the tags gpu; the run is for clients.tags = 'site-a,site-b'"
        >>> Admission(allowed=["camera-1"]).refusal("camera-2", None)
        'not in clients.allowed'
        """
        if self.allowed and key not in self.allowed:
            return "not in clients.allowed"
        if not self.tags:
            return ""
        if tags is not None and any(tag in tags for tag in self.tags):
            return ""
        shown = ", ".join(sorted(tags or ())[:_MOST_SHOWN])
        has = "has not answered yet" if tags is None else f"has the tags {shown}"
        wanted = f"the run is for clients.tags = {','.join(self.tags)!r}"
        return f"{has if shown or tags is None else 'has no tags'}; {wanted}"
