"""A client of one model on one server, over gRPC with TensorFlow Serving's own messages."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import grpc
import numpy as np
from tensorflow.core.framework import tensor_pb2, types_pb2
from tensorflow.core.protobuf import meta_graph_pb2
from tensorflow_serving.apis import (
    get_model_metadata_pb2,
    model_pb2,
    predict_pb2,
    prediction_service_pb2_grpc,
)

from hotrow.errors import (
    HotrowError,
    InvalidArgumentError,
    NotFoundError,
    UnavailableError,
    from_status,
    nearest,
)
from hotrow.serving.wire.status import Code, RequestError
from hotrow.serving.wire.tensor import Array, decode_tensor

_UNLIMITED = (
    ("grpc.max_receive_message_length", -1),
    ("grpc.max_send_message_length", -1),
)
_NUMPY: dict[int, np.dtype[Any]] = {
    types_pb2.DT_FLOAT: np.dtype("<f4"),
    types_pb2.DT_DOUBLE: np.dtype("<f8"),
    types_pb2.DT_INT32: np.dtype("<i4"),
    types_pb2.DT_INT64: np.dtype("<i8"),
}


DEFAULT_ROWS = "x-hotrow-default-rows"
STALE_ROWS = "x-hotrow-stale-rows"

_NODE = re.compile(r"\s*\[\[\{\{node .*", re.DOTALL)  # the node's position in the graph


class PredictClient:
    """Sends Predict requests to the newest version of a model; use it as a context manager.

    Attributes:
        default_rows: lookups of all requests that got a default row, because the server could not
            read the store in time (`--on_store_failure=default`).
        stale_rows: lookups whose rows may be old, because the server could not follow the store.
    """

    def __init__(self, server: str, model: str, timeout_seconds: float) -> None:
        """Prepares a connection; the first call opens it.

        Args:
            server: HOST:PORT of the gRPC port.
            model: name of the model.
            timeout_seconds: deadline of each call.
        """
        self.server = server
        self.model = model
        self._timeout_seconds = timeout_seconds
        self._channel = grpc.insecure_channel(server, options=_UNLIMITED)
        self._stub = prediction_service_pb2_grpc.PredictionServiceStub(self._channel)
        self.default_rows = 0
        self.stale_rows = 0

    def __enter__(self) -> PredictClient:
        return self

    def __exit__(self, *_: object) -> None:
        self._channel.close()

    def signature(self, name: str) -> tuple[int, meta_graph_pb2.SignatureDef]:
        """Returns the version that serves and its signature with this name.

        Raises:
            UnavailableError: no server answers, or it cannot answer now.
            NotFoundError: the server does not serve the model.
            InvalidArgumentError: the model has no such signature.
        """
        request = get_model_metadata_pb2.GetModelMetadataRequest(
            model_spec=model_pb2.ModelSpec(name=self.model), metadata_field=["signature_def"]
        )
        response = self._call(self._stub.GetModelMetadata, request)
        signatures = get_model_metadata_pb2.SignatureDefMap()
        response.metadata["signature_def"].Unpack(signatures)
        if name not in signatures.signature_def:
            legal = sorted(signatures.signature_def)
            raise InvalidArgumentError(
                f"model {self.model!r} has no signature {name!r}{nearest(name, legal)}; "
                f"it has: {', '.join(legal)}"
            )
        return response.model_spec.version.value, signatures.signature_def[name]

    def predict(
        self, signature: str, inputs: Mapping[str, tensor_pb2.TensorProto], output: str
    ) -> Array:
        """Returns one output of the model.

        Raises:
            HotrowError: the server cannot be reached or refuses the request.
        """
        request = predict_pb2.PredictRequest(
            model_spec=model_pb2.ModelSpec(name=self.model, signature_name=signature),
            inputs=inputs,
            output_filter=[output],
        )
        return decode_tensor(self._call(self._stub.Predict, request).outputs[output])

    def _call(self, method: Any, request: Any) -> Any:
        try:
            response, call = method.with_call(request, timeout=self._timeout_seconds)
        except grpc.RpcError as err:
            raise self._error(err) from err
        facts = dict(call.trailing_metadata() or ())
        self.default_rows += int(facts.get(DEFAULT_ROWS, 0))
        self.stale_rows += int(facts.get(STALE_ROWS, 0))
        return response

    def _error(self, err: Any) -> HotrowError:
        code, details = Code(err.code().value[0]), _NODE.sub("", err.details() or "")
        if code is Code.UNAVAILABLE and self._is_connected():
            return UnavailableError(
                f"{self.server} answers, but cannot score model {self.model!r} now: {details}"
            )
        if code is Code.UNAVAILABLE:
            return UnavailableError(
                f"no server answers at {self.server} ({details}); start one with 'platform "
                "serve', or check --server HOST:PORT (the gRPC port, not the REST one)"
            )
        if code is Code.DEADLINE_EXCEEDED:
            return RequestError(
                code,
                f"{self.server} did not answer within {self._timeout_seconds:g} s; give a longer "
                "--timeout_seconds or a smaller --batch_size",
            )
        if code is Code.NOT_FOUND:
            return NotFoundError(
                f"{self.server} does not serve model {self.model!r} ({details}); check --model"
            )
        return from_status(int(code), f"{self.server} refused the request: {code.name}: {details}")

    def _is_connected(self) -> bool:
        """Whether a server is reachable: gRPC has one code for no server and for a refusal."""
        try:
            grpc.channel_ready_future(self._channel).result(timeout=1.0)
        except grpc.FutureTimeoutError:
            return False
        return True


def pack_tensor(values: Array, dtype: int) -> tensor_pb2.TensorProto:
    """Returns a tensor to send; numbers as bytes, strings (an object array of bytes) as a list.

    Raises:
        InvalidArgumentError: a data file cannot hold this data type.
    """
    proto = tensor_pb2.TensorProto(dtype=dtype)
    for size in values.shape:
        proto.tensor_shape.dim.add(size=size)
    if dtype == types_pb2.DT_STRING:
        proto.string_val.extend(values.reshape(-1).tolist())
    elif dtype in _NUMPY:
        proto.tensor_content = values.astype(_NUMPY[dtype]).tobytes()
    else:
        raise InvalidArgumentError(
            f"an input has the data type {types_pb2.DataType.Name(dtype)}; a data file has "
            "numbers (float, double, int32, int64) and strings"
        )
    return proto
