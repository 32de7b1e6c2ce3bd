"""``forager keys``: what can be set."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from typer import Argument

from .options import command, refused

if TYPE_CHECKING:
    from ..config_help import ConfigKey


@command(
    ("forager keys", "all keys"),
    ("forager keys cosage", "keys with this in their name or meaning"),
    ("forager keys cosage. summary.", "the keys of two sections"),
)
def keys(
    patterns: list[str] | None = Argument(
        None, metavar="[PATTERN]...", help="Parts of keys' names or of their meanings."
    ),
) -> None:
    """List the keys of the run config: default, what is allowed, meaning."""
    from rich.console import Console
    from rich.padding import Padding
    from rich.text import Text

    from ...core.config import default_config
    from ...core.config.reading import nearest
    from ..config_help import keys_of, sections

    console = Console(highlight=False)
    known = [key for name in ["", *sections()] for key in keys_of(name)]
    found: dict[str, ConfigKey] = {}
    for pattern in patterns or [""]:
        some = matching(known, pattern)
        if not some:
            hint = nearest(pattern, list(default_config()))
            raise refused(f"no key has {pattern!r} in its name or meaning{hint}")
        found |= {key.key: key for key in some}
    for key in found.values():
        console.print(
            Text.assemble((key.key, "bold"), f" = {key.default}", (f"  {key.allowed}", "dim"))
        )
        console.print(Padding(Text(key.meaning), (0, 0, 0, 4)))


def matching(keys: Sequence["ConfigKey"], pattern: str) -> list["ConfigKey"]:
    """Return the keys that a pattern names; those with it in their names first."""
    wanted = pattern.lower()
    named = [key for key in keys if wanted in key.key]
    return named + [key for key in keys if key not in named and wanted in key.meaning.lower()]
