"""Whole runs in which cohorts share a body: what is saved is what clients use."""

from pathlib import Path

import numpy as np
import torch
from forager.tools.engine import run_local
from forager.tools.predict import load_model
from safetensors.numpy import load_file


def test_models_of_cohorts_have_one_body_and_their_own_heads(tmp_path: Path) -> None:
    run = run_local(
        {
            **{"num-clients": 6, "num-server-rounds": 2, "report": False, "model": "mlp"},
            **{"cohorts": "ifca", "cohort.number": 2, "cohort.share": "body"},
            **{"groups.kind": "label-permutation", "partition": "iid", "data-selector": "random"},
            "coreset.budget": 0.5,
            "output-dir": str(tmp_path),
        }
    )
    assert run.reason == "completed"
    saved = {path.stem: load_file(path) for path in run.folder.glob("model*.safetensors")}
    mean, first, second = (saved[name] for name in sorted(saved))
    for name in first:
        assert np.allclose(first[name], second[name]) == (not name.startswith("3."))
        assert np.allclose(first[name], mean[name]) or name.startswith("3.")
    x = torch.rand(4, 1, 8, 8)
    names = [name.removeprefix("model-") for name in sorted(saved)[1:]]
    answers = [load_model(run.folder, (1, 8, 8), cohort=cohort)(x) for cohort in names]
    assert not torch.allclose(*answers)
