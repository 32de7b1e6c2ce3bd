"""``forager keys``: what can be set."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from .options import REFUSED, examples

if TYPE_CHECKING:
    from ...core.config.help import ConfigKey


def add_to(app: typer.Typer) -> None:
    """Add the command."""
    app.command(
        epilog=examples(
            ("forager keys", "all keys"),
            ("forager keys cosage", "those with this in their name or meaning"),
            ("forager keys learning-rate", "default, range and meaning of one"),
        )
    )(keys)


def keys(
    pattern: Annotated[
        str | None,
        typer.Argument(metavar="[PATTERN]", help="Part of a key's name or of its meaning."),
    ] = None,
) -> None:
    """List the keys of the run config: default, what is allowed, meaning."""
    from rich.console import Console
    from rich.padding import Padding
    from rich.text import Text

    from ...core.config import default_config
    from ...core.config.help import keys_of, sections
    from ...core.config.reading import nearest

    console = Console(highlight=False)
    found = list(matching((key for name in ["", *sections()] for key in keys_of(name)), pattern))
    if not found:
        hint = nearest(pattern or "", list(default_config()))
        typer.echo(f"no key has {pattern!r} in its name or meaning{hint}", err=True)
        raise typer.Exit(REFUSED)
    for key in found:
        console.print(
            Text.assemble((key.key, "bold"), f" = {key.default}", (f"  {key.allowed}", "dim"))
        )
        console.print(Padding(Text(key.meaning), (0, 0, 0, 4)))


def matching(keys: Iterator["ConfigKey"], pattern: str | None) -> Iterator["ConfigKey"]:
    """Return the keys that a pattern names; those with it in their names first."""
    wanted = (pattern or "").lower()
    rest = []
    for key in keys:
        if wanted in key.key:
            yield key
        elif wanted in key.meaning.lower():
            rest.append(key)
    yield from rest
