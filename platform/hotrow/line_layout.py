"""The parts of a row line, read by numpy from its bytes: the layout of `core/kernels/row_line.h`.

A line is `[weights: D of one type | vectors x D of state | pad to 4 bytes | scalars x float32]`.
N: rows. D: weights of a row. L: bytes of a line.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from hotrow.errors import DataLossError
from hotrow.spec.tables import DTYPES

ROW_TYPES = DTYPES
"""How weights or state lie in memory; files have the position as a number."""

# A value is infinite or NaN if all bits of its exponent are set.
_EXPONENTS = {"float32": 0x7F800000, "bfloat16": 0x7F80, "float16": 0x7C00}

Lines = npt.NDArray[np.uint8]


@dataclass(frozen=True)
class LineLayout:
    """Where the parts of a line lie.

    Attributes:
        width: weights of a row, D.
        weights_type: one of `ROW_TYPES`.
        state_type: of the vectors of state; one of `ROW_TYPES`.
        vectors: state values a weight.
        scalars: state values a row, float32.
    """

    width: int
    weights_type: str = "float32"
    state_type: str = "float32"
    vectors: int = 0
    scalars: int = 0

    @classmethod
    def from_facts(cls, facts: Mapping[str, Any]) -> LineLayout:
        """Returns the layout that `Table.layout` describes.

        Raises:
            DataLossError: `facts` describe no layout.
        """
        try:
            layout = cls(
                width=int(facts["width"]),
                weights_type=_type_name(facts["weights_type"]),
                state_type=_type_name(facts["state_type"]),
                vectors=int(facts["vectors"]),
                scalars=int(facts["scalars"]),
            )
            written = int(facts["line_bytes"])
        except (KeyError, TypeError, ValueError, IndexError) as err:
            raise DataLossError(f"{facts!r} is no layout of row lines") from err
        if layout.line_bytes != written:
            raise DataLossError(
                f"a layout says {written} bytes a line, its parts have {layout.line_bytes}"
            )
        return layout

    @property
    def weights_bytes(self) -> int:
        """Bytes of a weight."""
        return _bytes_of(self.weights_type)

    @property
    def state_bytes(self) -> int:
        """Bytes of a value of the vectors of state."""
        return _bytes_of(self.state_type)

    @property
    def state_offset(self) -> int:
        """Bytes before the state."""
        return self.width * self.weights_bytes

    @property
    def scalars_offset(self) -> int:
        """Bytes before the scalars."""
        end = self.state_offset + self.vectors * self.width * self.state_bytes
        return (end + 3) // 4 * 4

    @property
    def line_bytes(self) -> int:
        """Bytes of a line, L."""
        return self.scalars_offset + 4 * self.scalars

    def weights(self, lines: Lines) -> npt.NDArray[np.float32]:
        """Returns the weights float32 [N, D] of lines uint8 [N, L]; float32 is not copied."""
        bits = _bits(lines, 0, self.width, self.weights_type)
        if self.weights_type == "float16":
            return bits.view(np.float16).astype(np.float32)
        if self.weights_type == "bfloat16":
            return (bits.astype(np.uint32) << 16).view(np.float32)
        return bits.view(np.float32)

    def put_weights(self, lines: Lines, weights: npt.NDArray[np.float32]) -> None:
        """Writes weights float32 [N, D] into lines uint8 [N, L], rounded to nearest, ties to even.

        Values beyond the type's range become infinite.
        """
        bits = _bits(lines, 0, self.width, self.weights_type)
        given = np.ascontiguousarray(weights, np.float32).view(np.uint32)
        if self.weights_type == "float16":
            with np.errstate(over="ignore"):
                bits[:] = given.view(np.float32).astype(np.float16).view(np.uint16)
        elif self.weights_type == "bfloat16":
            rounded = (given + 0x7FFF + ((given >> 16) & 1)) >> 16
            # Adding the rounding bit would turn a NaN into another value.
            bits[:] = np.where(np.isnan(weights), 0x7FC0, rounded)
        else:
            bits[:] = given

    def finite(self, lines: Lines) -> npt.NDArray[np.bool_]:
        """Returns bool [N]: whether all weights and states of the row are finite."""
        parts = (
            (0, self.width, self.weights_type),
            (self.state_offset, self.vectors * self.width, self.state_type),
            (self.scalars_offset, self.scalars, "float32"),
        )
        result = np.ones(len(lines), np.bool_)
        for first, values, type_name in parts:
            exponent = _EXPONENTS[type_name]
            bits = _bits(lines, first, values, type_name)
            result &= ((bits & bits.dtype.type(exponent)) != exponent).all(axis=1)
        return result


def _type_name(value: Any) -> str:
    return ROW_TYPES[value] if isinstance(value, int) else ROW_TYPES[ROW_TYPES.index(value)]


def _bytes_of(type_name: str) -> int:
    return 4 if type_name == "float32" else 2


def _bits(lines: Lines, first: int, values: int, type_name: str) -> npt.NDArray[Any]:
    """Returns `values` values from byte `first` on, as uint32 or uint16 [N, values]."""
    size = _bytes_of(type_name)
    part = lines[:, first : first + values * size]
    return part.view(np.uint32 if size == 4 else np.uint16)
