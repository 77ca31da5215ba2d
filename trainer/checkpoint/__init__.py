"""Checkpoints of a run: written beside the training, checked before anything is restored.

`directory` knows which there are, `snapshot` what one holds, `writer` when and how one is written,
`restore` how training goes on from it. `docs/formats.md` describes the files. Only `snapshot`, and
so `writer`, import TensorFlow.
"""

from hotrow.trainer.checkpoint.directory import CheckpointDirectory
from hotrow.trainer.checkpoint.position import Position
from hotrow.trainer.checkpoint.restore import Restored

__all__ = ["CheckpointDirectory", "Position", "Restored"]
