"""Models of binary labels by architecture name."""

from hotrow.trainer.models.ranker import Ranker
from hotrow.trainer.models.registry import build_model

__all__ = ["Ranker", "build_model"]
