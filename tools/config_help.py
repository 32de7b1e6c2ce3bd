"""Every key of the run config; ``--write`` updates ``pyproject.toml`` and ``docs/keys.md``."""

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from inspect import getdoc
from pathlib import Path
from typing import Any, get_args

from pydantic.fields import FieldInfo

from ..core.config.overrides import toml_value
from ..core.config.reading import default_config, nearest
from ..core.config.run_config import ConfigError, RunConfig
from ..core.methods.base import Settings
from ..core.methods.catalogue import AXES, methods

_BOUNDS = {"ge": "at least {}", "gt": "above {}", "le": "at most {}", "lt": "below {}"}
_TYPES = {int: "whole number", float: "number", str: "text", bool: "true, false"}
_TABLE = "[tool.flwr.app.config"
_OFTEN = {  # keys by what a user wants to do
    "Choose a method": (
        *("strategy", "client-selector", "data-selector", "work", "cohorts", "similarity"),
        *("aggregator", "objective", "uplink", "downlink", "privacy", "weighting", "serving"),
    ),
    "Data and model": (
        *("task", "data.path", "data.kind", "data.target-column", "data.user-column"),
        *("data.scale", "partition", "split.alpha", "model", "metrics"),
    ),
    "Rounds and clients": (
        *("num-server-rounds", "num-clients", "clients-per-round", "fraction-train"),
        *("clients.allowed", "clients.tags", "early-stop.patience", "early-stop.target", "seed"),
    ),
    "Training on clients": (
        *("learning-rate", "batch-size", "local-epochs", "local-steps", "optimiser.name", "device"),
    ),
    "Testing": (
        *("fraction-evaluate", "evaluate-every", "data.client-test-share"),
        *("data.validation-share", "leave-one-out", "personalise.epochs"),
    ),
    "Slow, failing and hostile clients": (
        *("round.deadline", "round.min-replies", "round.over-commit", "aggregation.buffer"),
        "aggregation.late",
        *("quarantine.norm-factor", "quarantine.count-factor"),
    ),
    "Traffic and privacy": (
        *("top-k.density", "summary.ask-at-most", "dp.clip", "dp.noise-multiplier", "dp.delta"),
        "dp.budget",
    ),
    "Files": ("output-dir", "run-name", "resume-from", "report", "callbacks"),
}


@dataclass(frozen=True)
class ConfigKey:
    """One key of the run config."""

    key: str
    default: str
    allowed: str
    meaning: str


def sections() -> dict[str, type[Settings]]:
    """Return all sections of the run config by the prefix of their keys."""
    fields = RunConfig.model_fields.values()
    kinds = (type(field.default) for field in fields if isinstance(field.default, Settings))
    return {kind.section: kind for kind in kinds}


def keys_of(section: str) -> list[ConfigKey]:
    """Return the keys of one section; of none, those without a prefix."""
    kind = _section(section) if section else RunConfig
    prefix = f"{section}." if section else ""
    return [
        _key(prefix + name.replace("_", "-"), field)
        for name, field in kind.model_fields.items()
        if not isinstance(field.default, Settings)
    ]


def _key(key: str, field: FieldInfo) -> ConfigKey:
    default = toml_value(default_config()[key])
    meaning = field.description or ""
    if key not in AXES:
        return ConfigKey(key, default, _allowed(field), meaning)
    return ConfigKey(key, default, ", ".join(methods(key)), meaning)


def _allowed(field: FieldInfo) -> str:
    kind: Any = field.annotation
    names = get_args(kind)
    if names:
        return ", ".join(_TYPES.get(n) or ", ".join(map(str, get_args(n) or (n,))) for n in names)
    bounds = [
        text.format(f"{getattr(rule, name):g}")
        for rule in field.metadata
        for name, text in _BOUNDS.items()
        if getattr(rule, name, None) is not None
    ]
    return " ".join([_TYPES[kind], ", ".join(bounds)]).strip()


def _section(name: str) -> type[Settings]:
    known = sections()
    if name not in known:
        hint = nearest(name, list(known))
        raise ConfigError(f"section {name!r}: unknown; there are {', '.join(known)}{hint}")
    return known[name]


def about(section: str) -> str:
    """Return what a section is for."""
    return (getdoc(_section(section)) or "").partition("\n\n")[0].replace("\n", " ")


def markdown(names: Sequence[str]) -> str:
    """Return the settings of some sections as tables in Markdown."""
    return "\n\n".join(f"`{name}`: {about(name)}\n\n{_table(keys_of(name))}" for name in names)


def _table(keys: Sequence[ConfigKey]) -> str:
    rows = [["key", "default", "allowed", "meaning"], ["---"] * 4]
    rows += [[f"`{k.key}`", f"`{k.default}`", k.allowed, _cell(k.meaning)] for k in keys]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;")


def page() -> str:
    """Return the page that lists every key and every method: often used ones first."""
    lines = [
        "# All keys",
        "",
        "Set them with `-c`, as in `forager run -c \"learning-rate=0.05 strategy='cosage'\"`.",
        "`forager keys PATTERN` prints those that match. Rarely used keys are folded, at the end.",
        "This page is generated from the code: `python -m forager.tools.config_help --write`.",
    ]
    known = {key.key: key for name in ("", *sections()) for key in keys_of(name)}
    for title, often in _OFTEN.items():
        lines += ["", f"## {title}", "", _table([_linked(known[name]) for name in often])]
    lines += ["", "## Methods by axis"]
    for axis in sorted(AXES, key=list(known).index):
        lines += ["", f"### `{axis}`", "", "| name | what it does | reads |", "| --- | --- | --- |"]
        for method in methods(axis).values():
            paper = f" ({method.paper})" if method.paper else ""
            reads = ", ".join(dict.fromkeys(_family(key) for key in method.keys_read()))
            lines.append(f"| `{method.name}` | {_cell(method.about + paper)} | {reads} |")
    lines += ["", "## All other keys"]
    above = {name for names in _OFTEN.values() for name in names}
    lines += _folded("Without a prefix", [key for key in keys_of("") if key.key not in above])
    for name in sections():
        lines += _folded(f"<code>{name}</code>: {about(name)}", keys_of(name))
    return "\n".join(lines) + "\n"


def _linked(key: ConfigKey) -> ConfigKey:
    return replace(key, allowed=f"[methods](#{key.key})") if key.key in AXES else key


def _family(key: str) -> str:
    section, dot, _ = key.partition(".")
    return f"`{section}.*`" if dot else f"`{key}`"


def _folded(title: str, keys: Sequence[ConfigKey]) -> list[str]:
    summary = f'<details markdown="1"><summary>{title}</summary>'
    return ["", summary, "", _table(keys), "", "</details>"]


def toml() -> str:
    """Return the table of defaults that ``pyproject.toml`` must hold, as Flower wants it."""
    parts = [f"{_TABLE}]", *_toml_lines(keys_of(""))]
    for name in sections():
        parts += ["", f"{_TABLE}.{name}]", *_toml_lines(keys_of(name))]
    return "\n".join(parts) + "\n"


def _toml_lines(keys: Sequence[ConfigKey]) -> Iterator[str]:
    for key in keys:
        default = '""' if key.default == "''" else key.default.replace("'", '"')
        name = key.key.rpartition(".")[2]
        yield f"{name} = {default}  # {key.meaning}"


def write(project: Path) -> list[Path]:
    """Bring the files that are made from the declarations up to date; return those that changed."""
    pyproject = project / "pyproject.toml"
    text = pyproject.read_text(encoding="utf-8")
    lines = text.splitlines(keepends=True)
    inside = [number for number, line in enumerate(lines) if line.startswith(_TABLE)]
    end = next(n for n in range(inside[-1] + 1, len(lines)) if lines[n].startswith("["))
    made = {
        pyproject: "".join(lines[: inside[0]]) + toml() + "\n" + "".join(lines[end:]),
        project / "docs" / "keys.md": page(),
    }
    old = {path: path.read_text(encoding="utf-8") if path.exists() else "" for path in made}
    for path, new in made.items():
        path.write_text(new, encoding="utf-8")
    return [path for path, new in made.items() if new != old[path]]


if __name__ == "__main__":
    if sys.argv[1:] != ["--write"]:
        sys.exit("use --write; forager keys lists settings")
    for changed in write(Path.cwd()):
        print(f"{changed.name} is new")
