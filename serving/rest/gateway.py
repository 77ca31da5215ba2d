"""REST's calls to the data plane; requests and replies are TF Serving's messages."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import grpc
from tensorflow_serving.apis import (
    classification_pb2,
    get_model_metadata_pb2,
    model_pb2,
    predict_pb2,
    prediction_service_pb2_grpc,
    regression_pb2,
)

from hotrow.serving.lifecycle.route_table import RouteTable
from hotrow.serving.wire.status import Code, RequestError, from_rpc_error, invalid

# Extra time of a call over that of its run, so that TensorFlow's own error for a run past its
# deadline arrives.
_GRACE_SECONDS = 5.0
# A version may be unloaded after its signature was read and before the request.
_ATTEMPTS = 3
# Trailing metadata that is for clients.
_METADATA_PREFIX = "x-hotrow-"

R = TypeVar("R")


@dataclass(frozen=True)
class Answer(Generic[R]):
    """An answer of the service.

    Attributes:
        response: the message.
        metadata: its trailing metadata whose names begin with x-hotrow-.
    """

    response: R
    metadata: Mapping[str, str]


class Gateway:
    """Calls PredictionService; every method raises the service's refusals as `RequestError`.

    Args:
        channel: to the data plane.
        routes: their signatures define how JSON becomes tensors.
    """

    def __init__(self, channel: grpc.Channel, routes: RouteTable) -> None:
        self._stub = prediction_service_pb2_grpc.PredictionServiceStub(channel)
        self._routes = routes

    def predict(
        self,
        request: predict_pb2.PredictRequest,
        signature_name: str,
        read_inputs: Callable[[Any], None],
        timeout_seconds: float,
    ) -> Answer[predict_pb2.PredictResponse]:
        """Returns the outputs.

        Args:
            request: with its spec.
            signature_name: the resolved name.
            read_inputs: fills the request's inputs according to a signature's.
            timeout_seconds: of the run.
        """
        asked = model_pb2.ModelSpec()
        asked.CopyFrom(request.model_spec)
        specific = asked.WhichOneof("version_choice") == "version"
        for attempt in range(_ATTEMPTS):
            servable = self._routes.find(asked)
            if signature_name not in servable.signatures:
                raise invalid(
                    f'Serving signature name: "{signature_name}" not found in signature def'
                )
            read_inputs(servable.signatures[signature_name].inputs)
            request.model_spec.version.value = servable.version
            try:
                return _ask(self._stub.Predict, request, timeout_seconds)
            except RequestError as err:
                gone = err.code is Code.NOT_FOUND and not specific
                if not gone or attempt == _ATTEMPTS - 1:
                    raise
        raise AssertionError("no attempt returned")

    def classify(
        self, request: classification_pb2.ClassificationRequest, timeout_seconds: float
    ) -> Answer[classification_pb2.ClassificationResponse]:
        """Returns the classes of each example."""
        return _ask(self._stub.Classify, request, timeout_seconds)

    def regress(
        self, request: regression_pb2.RegressionRequest, timeout_seconds: float
    ) -> Answer[regression_pb2.RegressionResponse]:
        """Returns the value of each example."""
        return _ask(self._stub.Regress, request, timeout_seconds)

    def metadata(
        self, request: get_model_metadata_pb2.GetModelMetadataRequest, timeout_seconds: float
    ) -> Answer[get_model_metadata_pb2.GetModelMetadataResponse]:
        """Returns the signatures of a version."""
        return _ask(self._stub.GetModelMetadata, request, timeout_seconds)


def _ask(method: grpc.UnaryUnaryMultiCallable, request: Any, timeout_seconds: float) -> Answer[Any]:
    sent = (
        # Error messages are not truncated here, unlike for gRPC's clients.
        ("x-hotrow-whole-messages", "1"),
        ("x-hotrow-run-millis", str(max(1, int(1000 * timeout_seconds)))),
    )
    try:
        response, call = method.with_call(
            request, timeout=timeout_seconds + _GRACE_SECONDS, metadata=sent
        )
    except grpc.RpcError as err:
        raise from_rpc_error(err) from err
    received = {n: v for n, v in call.trailing_metadata() if n.startswith(_METADATA_PREFIX)}
    return Answer(response, received)
