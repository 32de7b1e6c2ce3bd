"""``forager predict``: what the model of a run says about new data."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from .options import REFUSED, RunsOption, errors_in_words, examples, run_folder

_NAMES = ("x", "x_test", "x_train")  # of inputs in a file, the first that it has


def add_to(app: typer.Typer) -> None:
    """Add the command."""
    app.command(
        epilog=examples(
            ("forager predict latest new.npz", "by the newest run; new.npz holds x"),
            ("forager predict runs/mine new.npz --out answers.npz", "keep classes, probabilities"),
            ("forager predict runs/mine new.npz --cohort 0.1", "by the model of one cohort"),
        )
    )(predict)


def predict(
    run: Annotated[str, typer.Argument(help="A run's folder, or latest.")],
    data: Annotated[
        Path, typer.Argument(help="An .npz file with x (or x_test); y (or y_test) is compared.")
    ],
    out: Annotated[
        Path | None, typer.Option(help="An .npz file to write: classes, probabilities.")
    ] = None,
    cohort: Annotated[str, typer.Option(help="A cohort that has a model of its own.")] = "",
    runs: RunsOption = Path("runs"),
) -> None:
    """Predict the classes of new samples with model.safetensors of a run."""
    import zipfile

    import numpy as np

    from ..predict import class_counts, load_model
    from ..predict import predict as classify

    try:
        with np.load(data) as file:
            arrays = dict(file)
    except (OSError, ValueError, zipfile.BadZipFile) as error:
        print(f"{data}: not an .npz file that can be read: {error}", file=sys.stderr)
        raise typer.Exit(REFUSED) from None
    name = next((name for name in _NAMES if name in arrays), "")
    if not name:
        print(f"{data}: has {', '.join(arrays)}, but not x with the inputs", file=sys.stderr)
        raise typer.Exit(REFUSED)
    with errors_in_words():
        model = load_model(run_folder(run, runs), arrays[name].shape[1:], cohort=cohort)
    classes, probabilities = classify(model, arrays[name])
    print(f"{len(classes)} samples; predicted, by class: {class_counts(classes)}")
    labels = arrays.get(name.replace("x", "y"))
    if labels is not None:
        print(f"accuracy: {100 * float((classes == labels).mean()):.1f} %")
    if out is not None:
        np.savez(out, classes=classes, probabilities=probabilities)
        print(f"written: {out}")
