"""A model's dense weights in the form that the graph of a version restores."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from hotrow.errors import DataLossError, FailedPreconditionError, ResourceExhaustedError
from hotrow.store.cut_dense import PREFIX, pack

_GRAPH = "_CHECKPOINTABLE_OBJECT_GRAPH"

_Facts = dict[str, tuple[Any, tuple[int, ...]]]  # type and shape by name


class DenseForm:
    """The dense weights of a version directory, read once: their names, types and values.

    Args:
        version: the version directory.

    Raises:
        DataLossError: the version's variables cannot be read.
    """

    def __init__(self, version: Path) -> None:
        self._version = version
        self._graph: Any = None
        self._there: dict[str, npt.NDArray[Any]] | None = None
        prefix = version / "variables" / PREFIX
        if not prefix.with_name(f"{PREFIX}.index").exists():
            return
        try:
            reader = tf.train.load_checkpoint(str(prefix))
            types = reader.get_variable_to_dtype_map()
            self._graph = reader.get_tensor(_GRAPH) if _GRAPH in types else None
            self._there = {name: reader.get_tensor(name) for name in types if name != _GRAPH}
        except (tf.errors.OpError, RuntimeError, ValueError) as err:
            raise DataLossError(f"{prefix} cannot be read: {str(err).splitlines()[0]}") from err

    def packed(self, values: Sequence[npt.NDArray[Any]]) -> tuple[bytes, bool]:
        """Returns weights in the form of the version's restore op; whether the version has them.

        Args:
            values: of the variables, in the order of the export that made the version.

        Returns:
            The packed checkpoint (`cut_dense`), b"" for a model without dense weights; and whether
            the version has the same weights, bit for bit.

        Raises:
            FailedPreconditionError: the version has other variables.
            DataLossError: the version has none.
            ResourceExhaustedError: the folder for temporary files has no room or refuses.
        """
        own = {
            f"dense_variables/{i}/.ATTRIBUTES/VARIABLE_VALUE": value
            for i, value in enumerate(values)
        }
        there = self._there
        if there is None:
            if own:
                prefix = self._version / "variables" / PREFIX
                raise DataLossError(f"{prefix}.index is missing; make a full export")
            return b"", True
        facts, wanted = _facts(there), _facts(own)
        if facts != wanted:
            raise FailedPreconditionError(
                f"the model has other dense weights than {self._version}: "
                f"{_difference(facts, wanted)}; make a full export"
            )
        if not own:
            return b"", True
        as_exported = all(
            there[name].tobytes() == np.ascontiguousarray(value).tobytes()
            for name, value in own.items()
        )
        if self._graph is not None:
            own[_GRAPH] = self._graph
        with tempfile.TemporaryDirectory(prefix="hotrow-export-") as folder:
            path = Path(folder) / PREFIX
            _save(path, own)
            return pack(path), as_exported


def dense_checkpoint(variables: Sequence[tf.Variable], version: Path) -> tuple[bytes, bool]:
    """Returns weights in the form of a version's restore op, and whether the version has the same.

    Args:
        variables: in the order of the export that made the version.
        version: the version directory.

    Raises:
        FailedPreconditionError: the version has other variables.
        DataLossError: the version's variables cannot be read.
        ResourceExhaustedError: the folder for temporary files has no room or refuses.
    """
    return DenseForm(version).packed([variable.numpy() for variable in variables])


def _save(prefix: Path, values: Mapping[str, Any]) -> None:
    """Writes a checkpoint of TensorFlow's format."""
    try:
        with tf.device("CPU:0"):
            tf.raw_ops.SaveV2(
                prefix=str(prefix),
                tensor_names=list(values),
                shape_and_slices=[""] * len(values),
                tensors=[tf.constant(value) for value in values.values()],
            )
    except tf.errors.OpError as err:
        # "{{node ...}} FILE; REASON [Op:SaveV2]", of one of several types when the disk is full.
        reason = err.message.rpartition("; ")[2].partition(" [Op:")[0]
        raise ResourceExhaustedError(
            f"weights cannot be written to {tempfile.gettempdir()}: {reason}; make room, or set "
            "TMPDIR"
        ) from err


def _facts(values: Mapping[str, npt.NDArray[Any]]) -> _Facts:
    return {name: (np.asarray(value).dtype.type, value.shape) for name, value in values.items()}


def _difference(version: _Facts, model: _Facts) -> str:
    """Returns a text that names the first variable that differs."""
    names = version.keys() | model.keys()
    name = min(name for name in names if version.get(name) != model.get(name))
    return f"{name} is {_shown(version.get(name))} there and {_shown(model.get(name))} now"


def _shown(facts: tuple[Any, tuple[int, ...]] | None) -> str:
    return "missing" if facts is None else f"{np.dtype(facts[0]).name} {list(facts[1])}"
