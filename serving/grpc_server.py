"""The gRPC wire: PredictionService and ModelService over an InferenceService."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import NoReturn, TypeVar

import grpc
from tensorflow_serving.apis import (
    classification_pb2,
    get_model_metadata_pb2,
    get_model_status_pb2,
    inference_pb2,
    model_management_pb2,
    model_service_pb2_grpc,
    predict_pb2,
    prediction_service_pb2_grpc,
    regression_pb2,
)

from hotrow.errors import UnavailableError
from hotrow.serving.service import InferenceService
from hotrow.serving.status import Code, RequestError, as_request_error, cut_message

_STATUS = {code.value[0]: code for code in grpc.StatusCode}
_HOST = "0.0.0.0"
_OPTIONS = (
    ("grpc.max_receive_message_length", -1),
    ("grpc.max_send_message_length", -1),
    # Otherwise a second server would share the port and take half of the requests.
    ("grpc.so_reuseport", 0),
)

# grpcio gives a call without a deadline some time in the year 292 billion.
_NO_DEADLINE_SECONDS = 1e9

R = TypeVar("R")


def check_port_is_free(port: int, flag: str) -> None:
    """Refuses a port that cannot be listened on, before anything slow begins.

    Raises:
        UnavailableError: the port is taken or not allowed.
    """
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((_HOST, port))
            probe.listen(1)
        except OSError as err:
            raise UnavailableError(
                f"{flag} {port} cannot be used: {err.strerror}; choose another port"
            ) from err


class GrpcServer:
    """Listens on a port until it is stopped."""

    def __init__(self, service: InferenceService, port: int, max_threads: int | None) -> None:
        """Starts to listen.

        Args:
            service: answers the requests.
            port: TCP port, on every interface.
            max_threads: requests answered at a time; None means 4 for each CPU.

        Raises:
            UnavailableError: the port is taken or not allowed.
        """
        check_port_is_free(port, "--port")
        threads = max_threads or 4 * (os.cpu_count() or 1)
        self._server = grpc.server(
            ThreadPoolExecutor(threads, thread_name_prefix="grpc"), options=_OPTIONS
        )
        prediction_service_pb2_grpc.add_PredictionServiceServicer_to_server(
            _PredictionServicer(service), self._server
        )
        model_service_pb2_grpc.add_ModelServiceServicer_to_server(
            _ModelServicer(service), self._server
        )
        try:
            self._server.add_insecure_port(f"{_HOST}:{port}")
        except RuntimeError as err:
            raise UnavailableError(
                f"--port {port} cannot be used: {err}; choose another port"
            ) from err
        self._server.start()

    def stop(self, drain_seconds: float) -> None:
        """Takes no new request, and returns when the running ones ended or the time is up."""
        self._server.stop(drain_seconds).wait()


class _PredictionServicer(prediction_service_pb2_grpc.PredictionServiceServicer):  # type: ignore[misc]
    """The methods have the names of the proto; each answers or aborts with a status."""

    def __init__(self, service: InferenceService) -> None:
        self._service = service

    def Predict(  # noqa: N802
        self, request: predict_pb2.PredictRequest, context: grpc.ServicerContext
    ) -> predict_pb2.PredictResponse:
        return _answer(context, lambda: self._service.predict(request, _seconds_left(context)))

    def Classify(  # noqa: N802
        self, request: classification_pb2.ClassificationRequest, context: grpc.ServicerContext
    ) -> classification_pb2.ClassificationResponse:
        return _answer(context, lambda: self._service.classify(request, _seconds_left(context)))

    def Regress(  # noqa: N802
        self, request: regression_pb2.RegressionRequest, context: grpc.ServicerContext
    ) -> regression_pb2.RegressionResponse:
        return _answer(context, lambda: self._service.regress(request, _seconds_left(context)))

    def GetModelMetadata(  # noqa: N802
        self,
        request: get_model_metadata_pb2.GetModelMetadataRequest,
        context: grpc.ServicerContext,
    ) -> get_model_metadata_pb2.GetModelMetadataResponse:
        return _answer(context, lambda: self._service.metadata(request))

    def MultiInference(  # noqa: N802
        self, request: inference_pb2.MultiInferenceRequest, context: grpc.ServicerContext
    ) -> NoReturn:
        _not_built(context, "MultiInference")


class _ModelServicer(model_service_pb2_grpc.ModelServiceServicer):  # type: ignore[misc]
    def __init__(self, service: InferenceService) -> None:
        self._service = service

    def GetModelStatus(  # noqa: N802
        self,
        request: get_model_status_pb2.GetModelStatusRequest,
        context: grpc.ServicerContext,
    ) -> get_model_status_pb2.GetModelStatusResponse:
        return _answer(context, lambda: self._service.status(request))

    def HandleReloadConfigRequest(  # noqa: N802
        self, request: model_management_pb2.ReloadConfigRequest, context: grpc.ServicerContext
    ) -> NoReturn:
        _not_built(context, "HandleReloadConfigRequest")


def _answer(context: grpc.ServicerContext, answer: Callable[[], R]) -> R:
    """Returns the answer, or ends the call with the status of what it raised."""
    try:
        return answer()
    except Exception as err:
        refused = as_request_error(err)
    context.abort(_STATUS[int(refused.code)], cut_message(str(refused)))
    raise AssertionError("abort returned")


def _not_built(context: grpc.ServicerContext, method: str) -> NoReturn:
    context.abort(grpc.StatusCode.UNIMPLEMENTED, f"{method} is not built yet")
    raise AssertionError("abort returned")


def _seconds_left(context: grpc.ServicerContext) -> float | None:
    """Returns the time to the client's deadline, None when it set none.

    Raises:
        RequestError: DEADLINE_EXCEEDED when it is over already.
    """
    seconds: float | None = context.time_remaining()
    if seconds is None or seconds > _NO_DEADLINE_SECONDS:
        return None
    if seconds <= 0:
        raise RequestError(Code.DEADLINE_EXCEEDED, "Deadline Exceeded")
    return seconds
