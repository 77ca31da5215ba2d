"""ModelService, which the data plane forwards here from its port, and the admin port passes on.

The data plane also asks here for the page of metrics, on behalf of its REST port.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import grpc
from tensorflow_serving.apis import (
    get_model_status_pb2,
    model_management_pb2,
    model_pb2,
    model_service_pb2_grpc,
    status_pb2,
)

from hotrow.serving.lifecycle.model_lifecycle import VersionStatus
from hotrow.serving.lifecycle.served_models import ServedModels
from hotrow.serving.monitoring.metrics import Family, prometheus_name, sum_of
from hotrow.serving.wire.status import Code, RequestError, as_request_error, cut_message, invalid

_STATUS = {code.value[0]: code for code in grpc.StatusCode}
# A reload occupies a thread while its models load; the other threads answer GetModelStatus.
_THREADS = 16
_MOST_RELOADS = 12

# The executable alone may call it: it forwards no method of this service.
_INTERNAL = "hotrow.Control"
_PAGE = "MetricsPage"

STATUS = "GetModelStatus"
RELOAD = "HandleReloadConfigRequest"

R = TypeVar("R")

Families = Callable[[], Sequence[Family]]
"""Returns all metrics as they are now."""

Check = Callable[[str, str | None], None]
"""Takes a method and the header `authorization` of a call; raises `RequestError` to refuse it."""


def check_nothing(method: str, authorization: str | None) -> None:
    """Refuses no call."""


def model_status(
    models: ServedModels, request: get_model_status_pb2.GetModelStatusRequest
) -> get_model_status_pb2.GetModelStatusResponse:
    """Returns the state of one version, or of every version seen, the highest first.

    A label is ignored.

    Raises:
        RequestError: INVALID_ARGUMENT without a spec, NOT_FOUND when the model or the version was
            never seen.
    """
    if not request.HasField("model_spec"):
        raise invalid("Missing ModelSpec")
    return status_response(_statuses(models, request.model_spec))


def status_response(
    statuses: Iterable[VersionStatus],
) -> get_model_status_pb2.GetModelStatusResponse:
    """Returns these versions' states as a message."""
    response = get_model_status_pb2.GetModelStatusResponse()
    for status in statuses:
        entry = response.model_version_status.add(version=status.version, state=int(status.state))
        entry.status.error_code = int(status.code)
        entry.status.error_message = status.message
    return response


def _statuses(models: ServedModels, spec: model_pb2.ModelSpec) -> list[VersionStatus]:
    known = models.statuses(spec.name)
    if spec.WhichOneof("version_choice") == "version":
        version = spec.version.value
        known = [status for status in known if status.version == version]
        if not known:
            raise RequestError(
                Code.NOT_FOUND, f"Could not find version {version} of model {spec.name}"
            )
    if not known:
        raise RequestError(Code.NOT_FOUND, f"Could not find any versions of model {spec.name}")
    return known


def reload_config(
    models: ServedModels,
    request: model_management_pb2.ReloadConfigRequest,
    families: Families,
    applied: Callable[[], None],
    ended: threading.Event,
) -> model_management_pb2.ReloadConfigResponse:
    """Replaces the served models by those of a configuration; waits for the new ones.

    Args:
        models: of the server.
        request: the configuration, and names of metrics whose increase to return.
        families: returns the metrics.
        applied: called before the answer.
        ended: set when the client no longer waits for the answer.

    Raises:
        RequestError: the configuration is refused, or one of its new models failed to load.
    """
    if request.config.WhichOneof("config") != "model_config_list":
        raise invalid(
            "ServerModelConfig type not supported by HandleReloadConfigRequest. Only "
            "ModelConfigList is currently supported"
        )
    names = list(dict.fromkeys(request.metric_names))
    before = _values(names, families)
    try:
        models.wait_until_available(models.apply(request.config), ended.is_set)
    finally:
        applied()
    after = _values(names, families)
    response = model_management_pb2.ReloadConfigResponse(status=status_pb2.StatusProto())
    for name in names:
        response.metric.add(name=name, int64_value_increase=after[name] - before[name])
    return response


def _values(names: Sequence[str], families: Families) -> dict[str, int]:
    """Returns the values of metrics by the names that a client uses, `/a/b` or `:a:b`."""
    known = {family.name: family for family in families()} if names else {}
    return {name: sum_of(known.get(prometheus_name(name))) for name in names}


class ModelServer:
    """Answers on an address until it is stopped."""

    def __init__(
        self,
        models: ServedModels,
        families: Families,
        address: str,
        check: Check,
        applied: Callable[[], None],
        page: Callable[[], str] | None = None,
        options: Sequence[tuple[str, int]] = (),
    ) -> None:
        """Listens.

        Args:
            models: of the server.
            families: returns the metrics.
            address: of gRPC.
            check: refuses calls.
            applied: called before the answer of a reload.
            page: returns the page of metrics, for the executable; None: it is not answered here.
            options: of gRPC.
        """
        self._server = grpc.server(
            ThreadPoolExecutor(_THREADS, thread_name_prefix="models"), options=options
        )
        model_service_pb2_grpc.add_ModelServiceServicer_to_server(
            _Servicer(models, families, check, applied), self._server
        )
        if page is not None:
            self._server.add_generic_rpc_handlers([_page_handler(page)])
        self._server.add_insecure_port(address)
        self._server.start()

    def stop(self) -> None:
        """Aborts running calls and ends the server."""
        self._server.stop(None).wait()


def _page_handler(page: Callable[[], str]) -> grpc.GenericRpcHandler:
    """Returns the handler of the page of metrics: no bytes in, the text out."""

    def answer(request: bytes, context: grpc.ServicerContext) -> bytes:
        return page().encode()

    return grpc.method_handlers_generic_handler(
        _INTERNAL, {_PAGE: grpc.unary_unary_rpc_method_handler(answer)}
    )


class _Servicer(model_service_pb2_grpc.ModelServiceServicer):  # type: ignore[misc]
    """The methods have the names of the proto; each answers or aborts with a status."""

    def __init__(
        self, models: ServedModels, families: Families, check: Check, applied: Callable[[], None]
    ) -> None:
        self._models = models
        self._families = families
        self._check = check
        self._applied = applied
        self._reloads = threading.Semaphore(_MOST_RELOADS)

    def GetModelStatus(  # noqa: N802
        self,
        request: get_model_status_pb2.GetModelStatusRequest,
        context: grpc.ServicerContext,
    ) -> get_model_status_pb2.GetModelStatusResponse:
        return self._answer(context, STATUS, lambda: model_status(self._models, request))

    def HandleReloadConfigRequest(  # noqa: N802
        self, request: model_management_pb2.ReloadConfigRequest, context: grpc.ServicerContext
    ) -> model_management_pb2.ReloadConfigResponse:
        return self._answer(context, RELOAD, lambda: self._reload(request, context))

    def _reload(
        self, request: model_management_pb2.ReloadConfigRequest, context: grpc.ServicerContext
    ) -> model_management_pb2.ReloadConfigResponse:
        ended = threading.Event()
        if not context.add_callback(ended.set):
            raise RequestError(Code.CANCELLED, "the client cancelled the call before it began")
        if not self._reloads.acquire(blocking=False):
            raise RequestError(
                Code.RESOURCE_EXHAUSTED,
                f"{_MOST_RELOADS} reloads wait for their models; try again when one has ended",
            )
        try:
            return reload_config(self._models, request, self._families, self._applied, ended)
        finally:
            self._reloads.release()

    def _answer(self, context: grpc.ServicerContext, method: str, answer: Callable[[], R]) -> R:
        """Returns the answer, or ends the call with the status of what was raised."""
        try:
            self._check(method, dict(context.invocation_metadata()).get("authorization"))
            return answer()
        except Exception as err:
            refused = as_request_error(err)
        context.abort(_STATUS[int(refused.code)], cut_message(str(refused)))
        raise AssertionError("abort returned")
