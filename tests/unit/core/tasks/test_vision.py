import builtins
import importlib
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from forager.core.tasks import TaskError, TaskSpec, load_task
from forager.core.tasks import torchvision_compat as vision
from forager.core.tasks.models import build_model


def test_models_and_transforms_work() -> None:
    module = vision.torchvision()
    with torch.device("meta"):
        assert module.models.get_model("resnet18", num_classes=3).fc.out_features == 3
    image = module.transforms.functional.hflip(torch.tensor([[[1.0, 2.0]]]))
    assert image.tolist() == [[[2.0, 1.0]]]


def test_the_module_is_imported_once() -> None:
    assert vision.torchvision() is vision.torchvision()


def test_importing_the_modules_that_use_it_does_not_import_torchvision() -> None:
    code = (
        "import sys, forager.core.tasks.models, forager.core.tasks.backbones; "
        "sys.exit('torchvision' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False, timeout=120).returncode == 0


def test_missing_operators_are_declared_and_the_import_tried_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    attempts: list[str] = []
    declared: list[str] = []

    def import_module(name: str) -> object:
        attempts.append(name)
        if not declared:
            raise RuntimeError("operator torchvision::nms does not exist")
        return builtins

    monkeypatch.setattr(importlib, "import_module", import_module)
    monkeypatch.setattr(torch.library, "define", lambda name, schema: declared.append(name))
    assert vision.torchvision.__wrapped__() is builtins
    assert attempts == ["torchvision", "torchvision"]
    assert declared == ["torchvision::nms", "torchvision::qnms"]


def test_a_working_torchvision_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    declared: list[str] = []
    monkeypatch.setattr(importlib, "import_module", lambda name: builtins)
    monkeypatch.setattr(torch.library, "define", lambda name, schema: declared.append(name))
    assert vision.torchvision.__wrapped__() is builtins
    assert declared == []


def test_another_fault_is_not_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    def import_module(name: str) -> object:
        raise RuntimeError("different CUDA major versions")

    monkeypatch.setattr(importlib, "import_module", import_module)
    with pytest.raises(RuntimeError, match="different CUDA"):
        vision.torchvision.__wrapped__()


def test_without_torchvision_the_error_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def import_module(name: str) -> object:
        raise ModuleNotFoundError(f"No module named {name!r}", name=name)

    monkeypatch.setattr(importlib, "import_module", import_module)
    vision.torchvision.cache_clear()
    advice = r"torchvision is missing: pip install 'forager-fl\[vision\]'"
    with pytest.raises(TaskError, match=advice):
        build_model("resnet18", (3, 32, 32), 10)
    with pytest.raises(TaskError, match=advice):
        load_task(TaskSpec(task="cifar10", cache_dir=str(tmp_path))).server_data()
