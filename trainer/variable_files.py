"""Variables of the dense part and of its optimizer as one safetensors file.

A variable is known by its position and path (`0003|wide_deep/deep/deep_0_dense/kernel`): paths
alone are not unique in Keras.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from safetensors import SafetensorError
from safetensors.numpy import load_file, save_file

from hotrow.errors import DataLossError, FailedPreconditionError

_NUMBERED = re.compile(r"(seed_generator)(_\d+)?")  # Keras counts these over the whole process


def write_variables(variables: Sequence[Any], path: Path) -> None:
    """Writes Keras variables, in their order, to a safetensors file."""
    arrays = {
        _name(number, variable): np.array(variable.numpy(), order="C")
        for number, variable in enumerate(variables)
    }
    save_file(arrays, path)


def read_variables(variables: Sequence[Any], path: Path) -> None:
    """Assigns what `write_variables` wrote.

    Args:
        variables: of a model or optimizer made from the same configuration.
        path: the file.

    Raises:
        DataLossError: the file is missing or damaged.
        FailedPreconditionError: it holds other variables; none is assigned.
    """
    try:
        arrays: dict[str, npt.NDArray[Any]] = load_file(path)
    except (OSError, SafetensorError) as err:
        raise DataLossError(f"{path} cannot be read: {err}") from err
    own = {_name(number, variable): variable for number, variable in enumerate(variables)}
    for name in sorted(set(own) ^ set(arrays)):
        where = "only in the file" if name in arrays else "only in the model"
        raise FailedPreconditionError(
            f"{path}: variable {name!r} is {where}; use the configuration of the run"
        )
    for name, variable in own.items():
        if arrays[name].shape != tuple(variable.shape):
            raise FailedPreconditionError(
                f"{path}: variable {name!r} has shape {arrays[name].shape}, the model's "
                f"{tuple(variable.shape)}; use the configuration of the run"
            )
    for name, variable in own.items():
        variable.assign(arrays[name])


def _name(number: int, variable: Any) -> str:
    path = _NUMBERED.sub(r"\1", variable.path)
    return f"{number:04d}|{path}"
