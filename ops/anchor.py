"""The anchor: the layer's only Keras variable; the tape and the optimizer reach tables through it.

A backward pass returns a unit in its slot as the anchor's gradient. An optimizer that averages
gradients over micro-steps, or a loop that adds or scales them, treats that unit like every other
gradient. The value that reaches the anchor shows the tables which backward passes count, by which
factors, and that the optimizer took its step. `docs/design/0001-first-light.md` explains why.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any

import keras
import tensorflow as tf

from hotrow.errors import InvalidArgumentError, UnimplementedError
from hotrow.ops import library
from hotrow.ops.collective_order import collective
from hotrow.ops.keras_callers import called_by, calling
from hotrow.ops.placement import CPU

SLOTS = 256
"""HR_SLOTS of the native core: backward passes that may wait for a commit."""
UNCHANGED = -(2.0**-60)
"""HR_UNCHANGED of the native core: what the anchor always holds."""


class AnchorVariable(keras.Variable):  # type: ignore[misc]
    """A float32 vector [SLOTS] that always holds UNCHANGED; assigning to it commits the tables.

    It lives on the host, wherever the tables are: operations on it never wait for a GPU.

    Args:
        handles: the tables' names in the native registry.
        device: TensorFlow's name of the device on which the tables' ops run.
        learning_rates: returns the tables' learning rates at their next step, float32 [T].
        global_clipnorm: largest norm of all gradients of a step; None: no bound.
        on_ranks: whether the tables are split over ranks.
    """

    def __init__(
        self,
        handles: Sequence[str],
        device: str,
        learning_rates: Callable[[], Any],
        global_clipnorm: float | None = None,
        on_ranks: bool = False,
    ) -> None:
        self._on_ranks = on_ranks
        self._warned = False
        self._handles = list(handles)
        self._device = device
        self._learning_rates = learning_rates
        self._global_clipnorm = global_clipnorm or 0.0
        with tf.device(CPU):
            super().__init__(
                tf.fill([SLOTS], UNCHANGED),
                dtype="float32",
                trainable=True,
                autocast=False,
                name="anchor",
            )

    @property
    def overwrite_with_gradient(self) -> bool:
        """True: Keras optimizers assign the gradient itself and keep no slots for it.

        Raises:
            InvalidArgumentError: the calling Keras optimizer scales the loss or averages weights.
            UnimplementedError: Keras asks, and which optimizer it is does not show.
        """
        # Keras does not unscale the gradients of such variables, and does not pass them on a step
        # that it skips.
        asking = calling(keras.optimizers.Optimizer)
        if asking is None and called_by("keras"):
            raise UnimplementedError(
                f"DistributedEmbedding: Keras {keras.version()} does not show which optimizer "
                "trains the layer, and Hotrow cannot check it; use Keras 3.12 to 3.15"
            )
        scales = isinstance(asking, keras.optimizers.LossScaleOptimizer)
        if scales or getattr(asking, "loss_scale_factor", None) is not None:
            raise InvalidArgumentError(
                "DistributedEmbedding: loss scaling is not supported "
                f"({type(asking).__name__} would update rows with scaled gradients); "
                "use the dtype policy 'mixed_bfloat16' or 'float32'"
            )
        if getattr(asking, "use_ema", False):
            raise InvalidArgumentError(
                f"DistributedEmbedding: {type(asking).__name__}(use_ema=True) does not reach the "
                "rows of tables; leave use_ema out"
            )
        return True

    @overwrite_with_gradient.setter
    def overwrite_with_gradient(self, value: bool) -> None:
        if not value:
            raise InvalidArgumentError("the anchor's overwrite_with_gradient must stay True")

    def numpy(self) -> Any:
        """Returns its value; warns once if Keras' EarlyStopping reads it for a later restore."""
        asking = calling(keras.callbacks.EarlyStopping)
        if asking is not None and not self._warned:
            self._warned = True
            warnings.warn(
                f"{type(asking).__name__}(restore_best_weights=True) restores dense weights and "
                "leaves the rows of tables as they are; use hotrow.EarlyStopping, which restores "
                "both",
                stacklevel=2,
            )
        return super().numpy()

    def _direct_assign(self, value: Any) -> None:
        with tf.device(CPU):
            token = self._token(tf.cast(value, tf.float32))
        if token is None:
            return
        learning_rates = self._learning_rates()
        with tf.device(self._device), collective(self._on_ranks):
            library.load().hotrow_commit(
                commit_token=token,
                learning_rates=learning_rates,
                tables=self._handles,
                global_clipnorm=self._global_clipnorm,
            )

    def _token(self, value: Any) -> Any:
        """Returns the commit token for a value that is assigned, or None if it says nothing.

        On a micro-step of gradient accumulation a Keras optimizer assigns the old value, and on the
        last one the units of all of them, without the mean. Every other assignment of the old value
        comes from `set_weights`: it is no step. Weights that a program averaged differ from it by
        rounding; a step differs more in at least one slot.
        """
        optimizer = calling(keras.optimizers.Optimizer)
        if optimizer is not None:
            steps = getattr(optimizer, "gradient_accumulation_steps", None)
            return value if not steps else tf.where(value == UNCHANGED, value, value / steps)
        is_old = tf.reduce_all(tf.abs(value - UNCHANGED) <= -UNCHANGED)
        if tf.executing_eagerly():
            return None if is_old else value
        return tf.where(is_old, UNCHANGED, value)
