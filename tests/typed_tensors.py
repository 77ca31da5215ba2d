"""TensorProtos in typed fields, as TF Serving answers; `tf.make_tensor_proto` uses others."""

from __future__ import annotations

from typing import Any

import numpy as np
from tensorflow.core.framework import tensor_pb2, types_pb2

FIELDS = {
    types_pb2.DT_FLOAT: "float_val",
    types_pb2.DT_DOUBLE: "double_val",
    types_pb2.DT_INT8: "int_val",
    types_pb2.DT_INT16: "int_val",
    types_pb2.DT_INT32: "int_val",
    types_pb2.DT_UINT8: "int_val",
    types_pb2.DT_UINT16: "int_val",
    types_pb2.DT_INT64: "int64_val",
    types_pb2.DT_UINT32: "uint32_val",
    types_pb2.DT_UINT64: "uint64_val",
    types_pb2.DT_BOOL: "bool_val",
    types_pb2.DT_STRING: "string_val",
    types_pb2.DT_HALF: "half_val",
    types_pb2.DT_BFLOAT16: "half_val",
    types_pb2.DT_COMPLEX64: "scomplex_val",
    types_pb2.DT_COMPLEX128: "dcomplex_val",
}
# Their entries are the bits of a value or its parts, not the value itself.
_ENTRIES = {"half_val": np.uint16, "scomplex_val": np.float32, "dcomplex_val": np.float64}


def typed_tensor(array: Any, dtype: int) -> tensor_pb2.TensorProto:
    """Returns an array (of bytes objects for strings) in the typed field of its data type."""
    proto = tensor_pb2.TensorProto(dtype=dtype)
    for size in array.shape:
        proto.tensor_shape.dim.add(size=size)
    flat = array.reshape(-1)
    field = FIELDS[dtype]
    if field in _ENTRIES:
        flat = flat.view(_ENTRIES[field])
    getattr(proto, field).extend(flat.tolist())
    return proto
