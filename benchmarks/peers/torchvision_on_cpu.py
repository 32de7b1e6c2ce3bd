"""Lets torchvision be imported beside a torch for the CPU only; import this before it.

Its wheel on PyPI cannot load its operators there, and then fails while it describes them. No peer
needs any of them.
"""

import torch

OPERATORS = torch.library.Library("torchvision", "DEF")  # type: ignore[no-untyped-call]
for name in ("nms", "qnms"):
    OPERATORS.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")  # type: ignore[no-untyped-call]
