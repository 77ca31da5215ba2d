"""What a REST path means: one request in, status code and JSON body out; no HTTP server here."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote

from google.protobuf import json_format
from tensorflow_serving.apis import (
    classification_pb2,
    get_model_metadata_pb2,
    get_model_status_pb2,
    model_pb2,
    predict_pb2,
    regression_pb2,
)

from hotrow.serving.lifecycle.model_lifecycle import VersionStatus
from hotrow.serving.lifecycle.model_service import status_response
from hotrow.serving.rest.examples_json import read_examples, write_classes, write_values
from hotrow.serving.rest.gateway import Gateway
from hotrow.serving.rest.json_text import (
    BYTES_IN_STRING,
    NESTED_TOO_DEEPLY,
    parse_object,
    write_string,
)
from hotrow.serving.rest.predict_reply import write_outputs
from hotrow.serving.rest.predict_request import Form, read_inputs, signature_name
from hotrow.serving.wire.status import Code, as_request_error, invalid

_MODEL = r"/v1/models/(?P<name>[^/:]+)(?:/versions/(?P<version>\d+)|/labels/(?P<label>[^/:]+))?"
_INFERENCE = re.compile(_MODEL + r":(?P<method>classify|regress|predict)", re.IGNORECASE)
_LOOK = re.compile(_MODEL + r"(?P<metadata>/metadata)?", re.IGNORECASE)
_ALL_MODELS = re.compile(r"/v1/models", re.IGNORECASE)

_DEFAULT_SIGNATURE = "serving_default"
_MAX_VERSION = 2**63 - 1
_HTTP_STATUS = {
    Code.OK: 200,
    Code.INVALID_ARGUMENT: 400,
    Code.FAILED_PRECONDITION: 400,
    Code.OUT_OF_RANGE: 400,
    Code.UNAUTHENTICATED: 401,
    Code.PERMISSION_DENIED: 403,
    Code.NOT_FOUND: 404,
    Code.ALREADY_EXISTS: 409,
    Code.ABORTED: 409,
    Code.RESOURCE_EXHAUSTED: 429,
    Code.CANCELLED: 499,
    Code.UNKNOWN: 500,
    Code.INTERNAL: 500,
    Code.DATA_LOSS: 500,
    Code.UNIMPLEMENTED: 501,
    Code.UNAVAILABLE: 503,
    Code.DEADLINE_EXCEEDED: 504,
}


@dataclass(frozen=True)
class Reply:
    """An HTTP status code, a JSON body, and headers about the answer."""

    status: int
    body: bytes
    headers: Mapping[str, str]


@dataclass
class _Asked:
    """The target of a request, as far as its path names it, and the metadata of its answer."""

    model: str = ""
    method: str = ""
    metadata: Mapping[str, str] = field(default_factory=dict)


class RestHandler:
    """Answers requests below /v1/; safe to call from several threads.

    Args:
        gateway: to the data plane.
        model_status: answers GetModelStatus.
        statuses: returns the versions of each model.
        timeout_seconds: of one run of a model.
        count: takes model, method, code and microseconds of each request, for the metrics.
    """

    def __init__(
        self,
        gateway: Gateway,
        model_status: Callable[
            [get_model_status_pb2.GetModelStatusRequest],
            get_model_status_pb2.GetModelStatusResponse,
        ],
        statuses: Callable[[], Mapping[str, Sequence[VersionStatus]]],
        timeout_seconds: float,
        count: Callable[[str, str, Code, float], None],
    ) -> None:
        self._gateway = gateway
        self._model_status = model_status
        self._statuses = statuses
        self._timeout_seconds = timeout_seconds
        self._count = count

    def answer(self, verb: str, path: str, body: bytes) -> Reply:
        """Returns the reply to a request; never raises.

        Args:
            verb: "GET", "POST", ...
            path: as it was sent, percent-encoded and with its query string.
            body: uncompressed.
        """
        asked = _Asked()
        started = time.perf_counter()
        code = Code.OK
        try:
            text = self._dispatch(verb, path, body, asked)
        except RecursionError:
            code = Code.INVALID_ARGUMENT
            text = error_text(NESTED_TOO_DEEPLY)
        except Exception as err:
            refused = as_request_error(err)
            code = refused.code
            text = error_text(str(refused))
        self._count(asked.model, asked.method, code, int(1e6 * (time.perf_counter() - started)))
        return Reply(_HTTP_STATUS[code], _encode(text), asked.metadata)

    def _dispatch(self, verb: str, path: str, body: bytes, asked: _Asked) -> str:
        if verb == "POST" and (found := _INFERENCE.fullmatch(path)):
            methods: dict[str, Callable[[model_pb2.ModelSpec, bytes, _Asked], str]] = {
                "predict": self._predict,
                "classify": self._classify,
                "regress": self._regress,
            }
            asked.model, asked.method = unquote(found["name"]), found["method"].lower()
            return methods[asked.method](_spec(found), body, asked)
        if verb == "GET" and (found := _LOOK.fullmatch(path)):
            asked.model = unquote(found["name"])
            return self._metadata(_spec(found)) if found["metadata"] else self._status(_spec(found))
        if verb == "GET" and _ALL_MODELS.fullmatch(path):
            return self._models()
        raise invalid(f"Malformed request: {verb} {path}")

    def _predict(self, spec: model_pb2.ModelSpec, body: bytes, asked: _Asked) -> str:
        parsed = parse_object(body)
        name = signature_name(parsed)
        request = predict_pb2.PredictRequest(model_spec=spec)
        request.model_spec.signature_name = name
        form = Form.ROW

        def read(declared: Any) -> None:
            nonlocal form
            if not declared:
                raise invalid(f"Failed to get input map for signature: {name or 'DEFAULT'}")
            form, inputs = read_inputs(parsed, declared)
            request.inputs.clear()
            for alias, tensor in inputs.items():
                request.inputs[alias].CopyFrom(tensor)

        answer = self._gateway.predict(
            request, name or _DEFAULT_SIGNATURE, read, self._timeout_seconds
        )
        asked.metadata = answer.metadata
        return write_outputs(answer.response.outputs, form)

    def _classify(self, spec: model_pb2.ModelSpec, body: bytes, asked: _Asked) -> str:
        parsed = parse_object(body)
        spec.signature_name = signature_name(parsed)
        request = classification_pb2.ClassificationRequest(
            model_spec=spec, input=read_examples(parsed)
        )
        answer = self._gateway.classify(request, self._timeout_seconds)
        asked.metadata = answer.metadata
        return write_classes(answer.response.result)

    def _regress(self, spec: model_pb2.ModelSpec, body: bytes, asked: _Asked) -> str:
        parsed = parse_object(body)
        spec.signature_name = signature_name(parsed)
        request = regression_pb2.RegressionRequest(model_spec=spec, input=read_examples(parsed))
        answer = self._gateway.regress(request, self._timeout_seconds)
        asked.metadata = answer.metadata
        return write_values(answer.response.result)

    def _status(self, spec: model_pb2.ModelSpec) -> str:
        request = get_model_status_pb2.GetModelStatusRequest(model_spec=spec)
        return json.dumps(_plain(self._model_status(request)), indent=1)

    def _models(self) -> str:
        """Lists every model; TF Serving has no such request."""
        document = {
            "models": [
                {"name": name, **_plain(status_response(statuses))}
                for name, statuses in self._statuses().items()
            ]
        }
        return json.dumps(document, indent=1)

    def _metadata(self, spec: model_pb2.ModelSpec) -> str:
        request = get_model_metadata_pb2.GetModelMetadataRequest(
            model_spec=spec, metadata_field=["signature_def"]
        )
        response = self._gateway.metadata(request, self._timeout_seconds).response
        signatures = get_model_metadata_pb2.SignatureDefMap()
        response.metadata["signature_def"].Unpack(signatures)
        document = {
            "model_spec": _plain(response.model_spec),
            "metadata": {"signature_def": _plain(signatures)},
        }
        return json.dumps(document, indent=1)


def _spec(found: re.Match[str]) -> model_pb2.ModelSpec:
    spec = model_pb2.ModelSpec(name=unquote(found["name"]))
    if found["version"] is not None:
        version = int(found["version"])
        if version > _MAX_VERSION:
            raise invalid(f"Failed to convert version: {found['version']} to numeric.")
        spec.version.value = version
    elif found["label"] is not None:
        spec.version_label = unquote(found["label"])
    return spec


def _plain(message: Any) -> Any:
    """Returns a message as JSON values: proto field names, int64 as strings, defaults printed."""
    return json_format.MessageToDict(
        message, preserving_proto_field_name=True, always_print_fields_with_no_presence=True
    )


def error_text(message: str) -> str:
    """Returns the JSON of a refusal; replaces bytes of the request that are not UTF-8."""
    message = message.encode("utf-8", BYTES_IN_STRING).decode("utf-8", "replace")
    return f'{{ "error": {write_string(message)} }}'


def _encode(text: str) -> bytes:
    return text.encode("utf-8", BYTES_IN_STRING)
