"""Models that clients train, by name, and the linear head of each.

Most are plain `torch.nn.Sequential` of standard layers, so that a trainer can stack those of many
clients.
"""

from .build import MODELS, build_model
from .head import linear_head, split_at_head

__all__ = ["MODELS", "build_model", "linear_head", "split_at_head"]
