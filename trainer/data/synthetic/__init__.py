"""Click data in Criteo's format, drawn from a known model.

Symbols: `B` rows, `K` = 26 columns of keys, `M` = 13 columns of counts.
"""

from __future__ import annotations

from hotrow.trainer.data.synthetic.files import GeneratedFile, Generation, generate
from hotrow.trainer.data.synthetic.parameters import Parameters

__all__ = ["GeneratedFile", "Generation", "Parameters", "generate"]
