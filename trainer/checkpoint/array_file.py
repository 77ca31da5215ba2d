"""Named arrays in one safetensors file, written without a copy of the arrays.

The library's own writer builds the whole file in memory. This one needs no memory besides the
arrays, and computes the file's checksum while it writes.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
from safetensors import SafetensorError
from safetensors.numpy import load_file

from hotrow.errors import DataLossError
from hotrow.hashed_file import FileFacts, HashedFile

Arrays: TypeAlias = Mapping[str, npt.NDArray[Any]]

_ALIGNMENT = 8
_TYPES = {
    "bool": "BOOL",
    "uint8": "U8",
    "int8": "I8",
    "uint16": "U16",
    "int16": "I16",
    "uint32": "U32",
    "int32": "I32",
    "uint64": "U64",
    "int64": "I64",
    "float16": "F16",
    "bfloat16": "BF16",
    "float32": "F32",
    "float64": "F64",
}


def write_arrays(path: Path, arrays: Arrays) -> FileFacts:
    """Writes arrays to a new safetensors file, flushes it and returns its size and checksum.

    Args:
        path: the file to make.
        arrays: by name, C-contiguous. Larger elements come first in the file, so that every
            array is aligned; arrays of one element size keep their order.

    Raises:
        OSError: the disk is full or refuses.
    """
    ordered = sorted(arrays.items(), key=lambda item: -item[1].dtype.itemsize)
    header: dict[str, Any] = {}
    end = 0
    for name, array in ordered:
        start, end = end, end + array.nbytes
        header[name] = {
            "dtype": _TYPES[array.dtype.name],
            "shape": list(array.shape),
            "data_offsets": [start, end],
        }
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % _ALIGNMENT)
    with HashedFile(path) as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for _, array in ordered:
            if not array.flags.c_contiguous:
                raise ValueError(f"{path}: an array is not contiguous")
            if array.size:
                file.write(array.reshape(-1).view(np.uint8).data)
    return file.facts


def read_arrays(path: Path) -> dict[str, npt.NDArray[Any]]:
    """Returns the arrays of a safetensors file by name.

    Raises:
        DataLossError: the file is missing or not a safetensors file.
    """
    try:
        arrays: dict[str, npt.NDArray[Any]] = load_file(path)
    except (OSError, SafetensorError, KeyError, ValueError) as err:
        raise DataLossError(f"{path} cannot be read: {err}") from err
    return arrays
