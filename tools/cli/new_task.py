"""``forager new-task``: a file to start from with the user's own data and model."""

import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer

from .options import REFUSED, app, examples


@app.command(
    "new-task",
    epilog=examples(
        ("forager new-task", "writes mytask.py, which runs as it is"),
        ("forager new-task hospital.py", "under another name"),
    ),
)
def new_task(
    file: Annotated[Path, typer.Argument(help="The file to write.")] = Path("mytask.py"),
) -> None:
    """Write a commented Python file with a task and a model that run today; then make it yours."""
    from ..flower.env import command_name
    from .task_template import run_keys, task_file

    file = file.with_suffix(".py")
    problem = _problem(file)
    if problem:
        print(f"{file}: {problem}", file=sys.stderr)
        raise typer.Exit(REFUSED)
    file.write_text(task_file(file.stem), encoding="utf-8")
    command = f'{command_name()} run --local -c "{run_keys(file.stem)}"'
    print(f"{file} is written. It runs as it is:\n  {command}")


def _problem(file: Path) -> str:
    if not file.stem.isidentifier():
        return "choose a name that Python can import: letters, digits and underscores"
    if file.exists():
        return "exists already; choose another name"
    if not file.parent.is_dir():
        return f"there is no folder {file.parent}"
    if file.parent == Path() and find_spec(file.stem) is not None:
        return f"a module {file.stem!r} is installed already; choose another name"
    return ""
