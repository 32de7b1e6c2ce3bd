"""Tags of nodes: short words by which a run says which nodes it is for."""

import re

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
