"""Variables of the dense part and of its optimizer as arrays of a file.

A variable's name is its position and path (`0003|wide_deep/deep/deep_0_dense/kernel`): paths alone
are not unique in Keras.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from hotrow.errors import FailedPreconditionError
from hotrow.trainer.checkpoint.array_file import Arrays

_NUMBERED = re.compile(r"(seed_generator)(_\d+)?")  # Keras numbers these over the whole process


def copy_variables(variables: Sequence[Any]) -> dict[str, npt.NDArray[Any]]:
    """Returns copies of the values of Keras variables, by name and in their order."""
    return {
        _name(number, variable): np.array(variable.numpy(), order="C")
        for number, variable in enumerate(variables)
    }


def check_variables(variables: Sequence[Any], arrays: Arrays, path: Path) -> None:
    """Checks that `assign_variables` will find all values that it needs.

    Args:
        variables: variables of a model or optimizer.
        arrays: a result of `copy_variables`.
        path: the file that they come from, for messages.

    Raises:
        FailedPreconditionError: the arrays belong to other variables.
    """
    own = {_name(number, variable): variable for number, variable in enumerate(variables)}
    for name in sorted(set(own) ^ set(arrays)):
        where = "only in the file" if name in arrays else "only in the model"
        raise FailedPreconditionError(
            f"{path}: variable {name!r} is {where}; use the configuration of the run, and the "
            "version of Hotrow that wrote it"
        )
    for name, variable in own.items():
        if arrays[name].shape != tuple(variable.shape):
            raise FailedPreconditionError(
                f"{path}: variable {name!r} has shape {arrays[name].shape}, the model's "
                f"{tuple(variable.shape)}; use the configuration of the run"
            )


def assign_variables(variables: Sequence[Any], arrays: Arrays) -> None:
    """Assigns values that `check_variables` has checked."""
    for number, variable in enumerate(variables):
        variable.assign(arrays[_name(number, variable)])


def path_of(variable: Any) -> str:
    """Returns the path of a Keras variable, the same in every process."""
    return _NUMBERED.sub(r"\1", variable.path)


def stored_path_of(name: str) -> str:
    """Returns the path of the variable whose value has this name in a file."""
    return name.partition("|")[2]


def _name(number: int, variable: Any) -> str:
    return f"{number:04d}|{path_of(variable)}"
