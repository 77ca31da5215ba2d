"""Columns of a data file as a signature's inputs: what to read, and how it goes on the wire."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Protocol

import numpy as np
from tensorflow.core.framework import tensor_pb2, types_pb2
from tensorflow.core.protobuf import meta_graph_pb2

from hotrow.errors import InvalidArgumentError, nearest
from hotrow.serving.client import pack_tensor
from hotrow.serving.wire.tensor import Array

Kind = Literal["number", "integer", "text", "ids", "texts"]

_KINDS: dict[int, Kind] = {
    types_pb2.DT_FLOAT: "number",
    types_pb2.DT_DOUBLE: "number",
    types_pb2.DT_INT32: "integer",
    types_pb2.DT_INT64: "integer",
    types_pb2.DT_STRING: "text",
}
# A column with any number of values a row is sent flat: `x` [N], `x_row_splits` [B + 1], and
# `x_weights` [N] if ids are weighted.
_SPLITS = "_row_splits"
_WEIGHTS = "_weights"
_LISTS = ("ids", "texts")


class RaggedValues(Protocol):
    """A column's ids or texts: `values` [N], `row_splits` int64 [B + 1], `weights` float32 [N]."""

    @property
    def values(self) -> Array:
        """The values of all rows, one row after the other."""

    @property
    def row_splits(self) -> Array:
        """Where each row's values begin, and the end."""

    @property
    def weights(self) -> Array | None:
        """The ids' weights, None where every id weighs 1."""


@dataclass(frozen=True)
class ColumnInput:
    """An input that takes a column of the file.

    Attributes:
        name: of the input and of the column.
        kind: what the column's values are.
        dtype: the input's data type.
        rank: 1 for [B], 2 for [B, 1].
        weighted: for a column of ids, whether the signature also takes their weights.
    """

    name: str
    kind: Kind
    dtype: int
    rank: int = 1
    weighted: bool = False

    def pack(self, values: Array | RaggedValues) -> dict[str, tensor_pb2.TensorProto]:
        """Returns a column's values as the tensors to send, by input.

        Raises:
            InvalidArgumentError: the column has several values a row and the input takes one, or
                the other way round.
        """
        if isinstance(values, np.ndarray):
            if self.kind in _LISTS:
                raise InvalidArgumentError(
                    f"column {self.name!r} has one value a row, not {self.kind}"
                )
            shaped = values.reshape(-1, 1) if self.rank == 2 else values
            return {self.name: pack_tensor(shaped, self.dtype)}
        if self.kind not in _LISTS:
            raise InvalidArgumentError(
                f"column {self.name!r} has several values a row, the model takes one"
            )
        packed = {
            self.name: pack_tensor(values.values, self.dtype),
            self.name + _SPLITS: pack_tensor(values.row_splits, types_pb2.DT_INT64),
        }
        if self.weighted:
            ones = np.ones(len(values.values), np.float32)
            weights = ones if values.weights is None else values.weights
            packed[self.name + _WEIGHTS] = pack_tensor(weights, types_pb2.DT_FLOAT)
        return packed


def column_inputs(signature: meta_graph_pb2.SignatureDef) -> tuple[ColumnInput, ...]:
    """Returns the columns that a signature takes, in order of their names.

    Raises:
        InvalidArgumentError: an input takes neither ids nor one value per row of a type that a
            data file can hold.
    """
    ragged = [name for name in signature.inputs if name + _SPLITS in signature.inputs]
    parts = {name + end for name in ragged for end in (_SPLITS, _WEIGHTS)}
    return tuple(
        _list_input(name, signature)
        if name in ragged
        else _column_input(name, signature.inputs[name])
        for name in sorted(signature.inputs)
        if name not in parts
    )


def _list_input(name: str, signature: meta_graph_pb2.SignatureDef) -> ColumnInput:
    dtype = signature.inputs[name].dtype
    kind: Kind = "texts" if dtype == types_pb2.DT_STRING else "ids"
    return ColumnInput(name, kind, dtype, weighted=name + _WEIGHTS in signature.inputs)


def choose_output(signature: meta_graph_pb2.SignatureDef, wanted: str | None) -> str:
    """Returns the output to request: the wanted one, `scores`, or the only one.

    Raises:
        InvalidArgumentError: there is no such output, or several and none is called `scores`.
    """
    names = sorted(signature.outputs)
    if wanted is not None and wanted not in names:
        raise InvalidArgumentError(
            f"the signature has no output {wanted!r}{nearest(wanted, names)}; "
            f"it has: {', '.join(names)}"
        )
    chosen = wanted or ("scores" if "scores" in names else names[0])
    if wanted is None and chosen != "scores" and len(names) > 1:
        raise InvalidArgumentError(
            f"the signature has {len(names)} outputs, none called 'scores'; "
            f"choose one with --output: {', '.join(names)}"
        )
    return chosen


def column_scores(output: str, values: Array, rows: int) -> Array:
    """Returns an output of shape [B] or [B, 1] as [B].

    Raises:
        InvalidArgumentError: the output has another shape.
    """
    if values.shape not in ((rows,), (rows, 1)):
        raise InvalidArgumentError(
            f"output {output!r} has the shape {list(values.shape)} for {rows} rows; a score a row "
            "is needed: choose another with --output"
        )
    if not np.issubdtype(values.dtype, np.floating):
        raise InvalidArgumentError(f"output {output!r} holds no scores but {values.dtype} values")
    return values.reshape(-1)


def _column_input(name: str, info: meta_graph_pb2.TensorInfo) -> ColumnInput:
    sizes = [dim.size for dim in info.tensor_shape.dim]
    a_value_a_row = info.tensor_shape.unknown_rank or len(sizes) == 1 or sizes[1:] == [1]
    if not a_value_a_row or info.dtype not in _KINDS:
        raise InvalidArgumentError(
            f"input {name!r} takes {types_pb2.DataType.Name(info.dtype)} of shape {sizes}; a "
            "column of a data file has one number or string for each row"
        )
    return ColumnInput(name, _KINDS[info.dtype], info.dtype, 2 if sizes[1:] == [1] else 1)
