"""The settings of a method: ``python -m forager.core.config.help cosage summary``.

Keys, defaults and what is allowed come from the config itself, so that a list of them is never out
of date; what they mean comes from the docstrings there.
"""

import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from inspect import getdoc
from typing import Any, get_args

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from .overrides import toml_value
from .run_config import ConfigError, RunConfig, nearest

_BOUNDS = {"ge": "at least {}", "gt": "above {}", "le": "at most {}", "lt": "below {}"}
_TYPES = {int: "whole number", float: "number", str: "text", bool: "true, false"}


@dataclass(frozen=True)
class Knob:
    """One key of the run config."""

    key: str
    default: str
    allowed: str
    meaning: str


def knobs(section: str) -> list[Knob]:
    """Return the settings of one section of the run config.

    >>> knobs("prox")
    [Knob(key='prox.mu', default='0.01', allowed='number at least 0', meaning='')]
    """
    model = _section(section)
    meanings = _meanings(getdoc(model) or "")
    return [
        Knob(
            f"{section}.{name.replace('_', '-')}",
            toml_value(field.default),
            _allowed(field),
            meanings.get(name, ""),
        )
        for name, field in model.model_fields.items()
    ]


def about(section: str) -> str:
    """Return what a section is for.

    >>> about("prox")
    'The proximal objective.'
    """
    return (getdoc(_section(section)) or "").partition("\n\n")[0].replace("\n", " ")


def _section(name: str) -> type[BaseModel]:
    known = sections()
    if name not in known:
        hint = nearest(name, list(known))
        raise ConfigError(f"section {name!r}: unknown; there are {', '.join(known)}{hint}")
    return known[name]


def sections() -> dict[str, type[BaseModel]]:
    """Return all sections of the run config by the prefix of their keys."""
    return {
        key.replace("_", "-"): type(field.default)
        for key, field in RunConfig.model_fields.items()
        if isinstance(field.default, BaseModel)
    }


def _allowed(field: FieldInfo) -> str:
    kind: Any = field.annotation
    names = get_args(kind)
    if names:
        return ", ".join(map(str, names))
    bounds = [
        text.format(f"{getattr(rule, name):g}")
        for rule in field.metadata
        for name, text in _BOUNDS.items()
        if getattr(rule, name, None) is not None
    ]
    return " ".join([_TYPES[kind], ", ".join(bounds)]).strip()


def _meanings(doc: str) -> dict[str, str]:
    r"""Return what a numpydoc docstring says of each parameter.

    >>> _meanings("Title.\n\nParameters\n----------\na, b : int\n    Two\n    lines.")
    {'a': 'Two lines.', 'b': 'Two lines.'}
    """
    _, _, body = doc.partition("Parameters\n----------\n")
    found: dict[str, str] = {}
    for names, text in re.findall(r"^(\w[\w, ]*) : .*\n((?:[ ]+.*\n?|\n)+)", body, re.MULTILINE):
        for name in names.split(","):
            found[name.strip()] = " ".join(text.split())
    return found


def markdown(names: Sequence[str]) -> str:
    """Return the settings of some sections as tables in Markdown."""
    return "\n\n".join(_table(name) for name in names)


def _table(section: str) -> str:
    found = knobs(section)
    rows = [["key", "default", "allowed", "meaning"], ["---"] * 4]
    rows += [[f"`{k.key}`", f"`{k.default}`", k.allowed, _cell(k.meaning)] for k in found]
    width = 4 if any(knob.meaning for knob in found) else 3
    lines = [f"| {' | '.join(row[:width])} |" for row in rows]
    return "\n".join([f"`{section}`: {about(section)}", "", *lines])


def _cell(text: str) -> str:
    return text.replace("``", "`").replace("|", "\\|")


def main() -> int:
    """Print the settings of the sections named on the command line; of all by default."""
    names = sys.argv[1:] or list(sections())
    try:
        for name in names:
            print(f"{name}: {about(name)}")
            for knob in knobs(name):
                print(f"  {knob.key} = {knob.default}  ({knob.allowed})  {knob.meaning}".rstrip())
    except ConfigError as error:
        print(error, file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
