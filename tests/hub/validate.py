"""What `flwr app publish` checks before it uploads a folder, by the Flower that runs this file.

``python tests/hub/validate.py FOLDER``; nothing is sent. Exit code 1 and the reason if it fails.
"""

import sys
from importlib import import_module
from pathlib import Path

import click
import flwr
from flwr.cli.build import build_fab_from_disk

# Private: the command itself, a function of the same name, asks for a login first
publish = import_module("flwr.cli.app_cmd.publish")


def validate(app: Path) -> None:
    """Raise what Flower would say; print what would be uploaded."""
    config, _ = publish.load_and_validate(app / "pyproject.toml", check_module=True)
    publish._validate_app_name(app.name, "Flower App directory name")
    publish._validate_description(config["project"].get("description", ""))
    files = publish._collect_file_paths(app)
    publish._validate_files(files)
    bundle = build_fab_from_disk(app)
    print(f"flwr {flwr.__version__} takes {app}; its bundle has {len(bundle):,} bytes")


if __name__ == "__main__":
    try:
        validate(Path(sys.argv[1]).resolve())
    except (click.ClickException, ValueError) as error:
        sys.exit(f"flwr {flwr.__version__} does not take {sys.argv[1]}: {error}")
