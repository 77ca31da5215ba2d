"""Checkpoints of a run: written while training runs, checked before a restoration.

`directory` lists the checkpoints, `snapshot` holds the contents of one, `writer` decides when and
how to write one, `restore` continues training from one. `docs/formats.md` describes the files. Only
`snapshot`, and therefore `writer`, imports TensorFlow.
"""

from hotrow.trainer.checkpoint.directory import CheckpointDirectory
from hotrow.trainer.checkpoint.position import Position
from hotrow.trainer.checkpoint.restore import Restored

__all__ = ["CheckpointDirectory", "Position", "Restored"]
