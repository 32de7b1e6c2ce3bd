"""Models by name; most are plain ``Sequential``, so that a trainer can stack many clients'."""

from .build import MODELS, build_model
from .head import linear_head, split_at_head

__all__ = ["MODELS", "build_model", "linear_head", "split_at_head"]
