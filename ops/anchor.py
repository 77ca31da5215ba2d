"""The anchor: a scalar weight that carries the tape to the tables and the optimizer's word back.

The backward op returns 1 as the anchor's gradient. An optimizer that averages gradients over
micro-steps, or a loop that scales or clips them, treats that 1 like every other gradient, and
what finally reaches the anchor tells the tables by which factor to multiply theirs, and that the
dense step was really taken. `docs/design/0001-first-light.md` tells why.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from typing import Any

import keras
import tensorflow as tf

from hotrow.errors import InvalidArgumentError
from hotrow.ops import library


class AnchorVariable(keras.Variable):  # type: ignore[misc]
    """A float32 scalar that is always 0; to assign it commits the tables.

    Args:
        handles: of the tables in the native registry.
    """

    def __init__(self, handles: Sequence[str]) -> None:
        self._handles = list(handles)
        super().__init__(0.0, dtype="float32", trainable=True, autocast=False, name="anchor")

    @property
    def overwrite_with_gradient(self) -> bool:
        """True: Keras optimizers assign the gradient itself and keep no slots for it.

        Raises:
            InvalidArgumentError: a Keras optimizer that scales the loss asks.
        """
        # Keras does not unscale the gradients of such variables, and on a step that it skips it
        # does not tell; the frame that asks is the only place where the optimizer is known.
        asking = sys._getframe(1).f_locals.get("self")
        scales = isinstance(asking, keras.optimizers.LossScaleOptimizer)
        if scales or getattr(asking, "loss_scale_factor", None) is not None:
            raise InvalidArgumentError(
                "DistributedEmbedding: loss scaling is not supported "
                f"({type(asking).__name__} would update rows with scaled gradients); "
                "use the dtype policy 'mixed_bfloat16' or 'float32'"
            )
        return True

    @overwrite_with_gradient.setter
    def overwrite_with_gradient(self, value: bool) -> None:
        if not value:
            raise InvalidArgumentError("the anchor's overwrite_with_gradient must stay True")

    def _direct_assign(self, value: Any) -> None:
        library.load().hotrow_commit(witness=tf.cast(value, tf.float32), tables=self._handles)

    def assign_add(self, value: Any) -> Any:
        """Commits with the factor 1: a hand-written update does not show its gradient."""
        self._direct_assign(math.inf)
        return self.value

    def assign_sub(self, value: Any) -> Any:
        """Commits with the factor 1: a hand-written update does not show its gradient."""
        self._direct_assign(math.inf)
        return self.value
