"""``forager init``: a Flower app of the user's own, to start from."""

import re
import sys
from pathlib import Path

from typer import Argument

from .options import command, refused

_NAME = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")  # that Flower and Python both accept
_LONGEST = 32  # of Flower's


@command(
    ("forager init my-federation", "a folder that runs as it is; then make task.py yours"),
)
def init(folder: Path = Argument(..., help="The folder to write.")) -> None:
    """Write a small Flower app into a folder of yours: data, model and loss in one file."""
    from ..flower.env import command_name

    problem = _problem(folder)
    if problem:
        raise refused(f"{folder}: {problem}")
    for file in write_app(folder):
        print(f"  {file}")
    print(f"It runs as it is:\n  cd {folder} && {command_name()} run --local")


def write_app(folder: Path) -> list[Path]:
    """Write the app under the folder's name; return its files."""
    from ..flower.env import PROJECT

    template = PROJECT / "examples" / "new-app"
    names = {"my-federation": folder.name, "my_federation": folder.name.replace("-", "_")}
    texts = {
        str(file.relative_to(template)): file.read_text(encoding="utf-8")
        for file in sorted(template.rglob("*"))
        if file.is_file() and "__pycache__" not in file.parts
    }
    texts[".gitignore"] = texts.pop("gitignore")
    texts["LICENSE"] = (PROJECT / "LICENSE").read_text(encoding="utf-8")
    written = []
    for name, text in texts.items():
        for ours, theirs in names.items():
            name, text = name.replace(ours, theirs), text.replace(ours, theirs)
        written.append(folder / name)
        written[-1].parent.mkdir(parents=True, exist_ok=True)
        written[-1].write_text(text, encoding="utf-8")
    return written


def _problem(folder: Path) -> str:
    name = folder.name
    if not _NAME.fullmatch(name) or len(name) > _LONGEST:
        return f"an app's name has lower-case letters, digits and hyphens, at most {_LONGEST}"
    if name.replace("-", "_") in sys.stdlib_module_names or name == "forager":
        return "a module of this name exists already; choose another name"
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        return "exists already, and is not an empty folder; choose another name"
    return ""
