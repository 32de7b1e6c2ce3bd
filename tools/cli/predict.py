"""``forager predict``: what the model of a run says about new data."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from .options import REFUSED, RunsOption, TrustOption, errors_in_words, examples, run_folder

_NAMES = ("x", "x_test", "x_train")  # of inputs in a file, the first that it has


def add_to(app: typer.Typer) -> None:
    """Add the command."""
    app.command(
        epilog=examples(
            ("forager predict latest new.npz", "with the newest run; new.npz holds x"),
            ("forager predict runs/mine new.npz --out answers.npz", "keep classes, probabilities"),
            ("forager predict runs/mine new.npz --cohort 0.1", "with the model of one cohort"),
        )
    )(predict)


def predict(
    run: Annotated[str, typer.Argument(help="A run's folder, or latest.")],
    data: Annotated[
        Path, typer.Argument(help="An .npz file with x (or x_test); y (or y_test) is compared.")
    ],
    out: Annotated[
        Path | None, typer.Option(help="An .npz file to write predictions and scores to.")
    ] = None,
    cohort: Annotated[str, typer.Option(help="A cohort with its own model.")] = "",
    runs: RunsOption = Path("runs"),
    trust: TrustOption = False,
) -> None:
    """Predict new samples with model.safetensors of a run."""
    import zipfile

    import numpy as np

    from ..predict import class_counts, load_model, model_inputs, problem_of_run
    from ..predict import predict as answer
    from ..trust import find_own_modules

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
        folder = run_folder(run, runs)
        if trust:
            find_own_modules()
        problem = problem_of_run(folder, trust=trust)
        inputs = model_inputs(arrays[name], str(data), tokens=problem.tokens)
        model = load_model(folder, inputs.shape[1:], cohort=cohort, trust=trust)
    predicted, scores = answer(model, inputs, problem)
    targets = arrays.get(name.replace("x", "y"))
    if problem.has_classes:
        print(f"{len(predicted)} samples; predicted, by class: {class_counts(predicted)}")
        if targets is not None:
            print(f"accuracy: {100 * float((predicted == targets).mean()):.1f} %")
    else:
        print(f"{len(predicted)} samples ({problem.kind}); predictions of shape {scores.shape[1:]}")
    if out is not None:
        names = ("classes", "probabilities") if problem.has_classes else ("predicted", "scores")
        np.savez(out, allow_pickle=False, **dict(zip(names, (predicted, scores), strict=True)))
        print(f"written: {out}")
