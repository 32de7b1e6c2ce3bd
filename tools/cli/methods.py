"""``forager methods``: what can be chosen; ``forager keys``: what can be set."""

from typer import Argument

from .options import command, refused


@command(
    ("forager methods", "all methods, by axis"),
    ("forager methods client-selector", "who trains"),
    ("forager methods oort", "one, with the keys it reads"),
)
def methods(
    name: str | None = Argument(None, metavar="[NAME]", help="An axis, a method or a preset."),
) -> None:
    """List methods and presets, one line each, with the paper.

    Names of papers run the papers; our own are marked "ours".
    """
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from ...core.config.reading import nearest
    from ...core.config.run_config import RunConfig
    from ...core.methods.catalogue import AXES, all_methods, kind_of_preset, presets

    everything = [*presets(), *AXES, *(method.name for method in all_methods())]
    if name is not None and name not in everything:
        raise refused(f"there is no method {name!r}{nearest(name, everything)}")
    console = Console(highlight=False)
    console.print("Names of papers run the papers; our own are marked ours.\n")
    if name is None or name in presets():
        table = Table(box=None, title="Presets: strategy='<name>' sets", title_justify="left")
        for preset, axes in presets().items():
            if name in (None, preset):
                settings = ", ".join(f"{axis}='{v}'" for axis, v in axes.items())
                table.add_row(preset, Text(kind_of_preset(preset), style="dim"), settings)
        console.print(table)
    for axis in AXES:
        shown = [m for m in all_methods() if m.axis == axis and name in (None, axis, m.name)]
        if not shown:
            continue
        meaning = RunConfig.model_fields[axis.replace("-", "_")].description
        table = Table(box=None, title=f"\n{axis}: {meaning}", title_justify="left")
        for method in shown:
            about = Text(method.about)
            about.append(f" ({method.cited()})" if method.cited() else "", style="dim")
            if name == method.name and method.keys_read():
                about.append(f"\nkeys: {', '.join(method.keys_read())}")
            table.add_row(Text(method.name, style="bold"), Text(method.kind, style="dim"), about)
        console.print(table)


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
