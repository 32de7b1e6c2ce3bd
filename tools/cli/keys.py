"""``forager keys``: what can be set."""

from typer import Argument

from .options import command, refused


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
    from ..config_help import ConfigKey, keys_of, sections

    console = Console(highlight=False)
    known = [key for name in ["", *sections()] for key in keys_of(name)]
    found: dict[str, ConfigKey] = {}
    for pattern in patterns or [""]:
        named = [key for key in known if pattern.lower() in key.key]
        meant = [key for key in known if pattern.lower() in key.meaning.lower()]
        if not named + meant:
            hint = nearest(pattern, list(default_config()))
            raise refused(f"no key has {pattern!r} in its name or meaning{hint}")
        found |= {key.key: key for key in named + meant}
    for key in found.values():
        console.print(
            Text.assemble((key.key, "bold"), f" = {key.default}", (f"  {key.allowed}", "dim"))
        )
        console.print(Padding(Text(key.meaning), (0, 0, 0, 4)))
