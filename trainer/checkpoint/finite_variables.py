"""Keeps a checkpoint from being written when the dense part holds a NaN or an infinity."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from hotrow.errors import FailedPreconditionError
from hotrow.trainer.checkpoint.variable_files import path_of

_MOST_NAMES = 3


def check_finite(variables: Sequence[Any], step: int, left: str) -> None:
    """Checks that all values of the dense part are finite.

    Args:
        variables: Keras variables of the model and of its optimizer.
        step: the run's step, for the message.
        left: which checkpoint stays, for the message.

    Raises:
        FailedPreconditionError: a variable holds a NaN or an infinity.
    """
    wrong = [path_of(variable) for variable in variables if not _is_finite(variable)]
    if not wrong:
        return
    more = f" and {len(wrong) - _MOST_NAMES} more" if len(wrong) > _MOST_NAMES else ""
    raise FailedPreconditionError(
        f"the dense part is no longer finite at step {step}: {', '.join(wrong[:_MOST_NAMES])}"
        f"{more}; no checkpoint of it is written, {left}; lower optimizer.learning_rate, set "
        "optimizer.global_clipnorm, or check the dense columns"
    )


def _is_finite(variable: Any) -> bool:
    values = variable.numpy()
    return values.dtype.kind in "iub" or bool(np.isfinite(values).all())
