"""What the server answers, whatever the wire: requests and replies are TF Serving's messages."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from tensorflow.core.protobuf import meta_graph_pb2
from tensorflow_serving.apis import (
    classification_pb2,
    get_model_metadata_pb2,
    get_model_status_pb2,
    model_pb2,
    predict_pb2,
    regression_pb2,
)

from hotrow.serving.catalog import Catalog
from hotrow.serving.status import invalid

_SIGNATURES = "signature_def"


class _HasModelSpec(Protocol):
    @property
    def model_spec(self) -> model_pb2.ModelSpec: ...

    def HasField(self, field_name: str) -> bool: ...  # noqa: N802


class InferenceService:
    """Answers the requests of both wires; every method raises `RequestError` to refuse.

    A `timeout_seconds` of None waits for ever.
    """

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog

    def predict(
        self, request: predict_pb2.PredictRequest, timeout_seconds: float | None
    ) -> predict_pb2.PredictResponse:
        """Returns the outputs; the reply's spec names the signature and version that were used."""
        with self._catalog.acquire(_spec(request)) as servable:
            signature, outputs = servable.predict(
                request.model_spec.signature_name,
                request.inputs,
                request.output_filter,
                timeout_seconds,
            )
            response = predict_pb2.PredictResponse()
            _name_version(response.model_spec, servable.model, servable.version, signature)
        for alias, proto in outputs.items():
            response.outputs[alias].CopyFrom(proto)
        return response

    def classify(
        self, request: classification_pb2.ClassificationRequest, timeout_seconds: float | None
    ) -> classification_pb2.ClassificationResponse:
        """Returns the classes of each example."""
        with self._catalog.acquire(_spec(request)) as servable:
            signature, result = servable.classify(
                request.model_spec.signature_name, request.input, timeout_seconds
            )
            response = classification_pb2.ClassificationResponse(result=result)
            _name_version(response.model_spec, servable.model, servable.version, signature)
        return response

    def regress(
        self, request: regression_pb2.RegressionRequest, timeout_seconds: float | None
    ) -> regression_pb2.RegressionResponse:
        """Returns the value of each example."""
        with self._catalog.acquire(_spec(request)) as servable:
            signature, result = servable.regress(
                request.model_spec.signature_name, request.input, timeout_seconds
            )
            response = regression_pb2.RegressionResponse(result=result)
            _name_version(response.model_spec, servable.model, servable.version, signature)
        return response

    def metadata(
        self, request: get_model_metadata_pb2.GetModelMetadataRequest
    ) -> get_model_metadata_pb2.GetModelMetadataResponse:
        """Returns the signatures of a version."""
        spec = _spec(request)
        if not request.metadata_field:
            raise invalid("GetModelMetadataRequest must specify at least one metadata_field")
        for field in request.metadata_field:
            if field != _SIGNATURES:
                raise invalid(f"Metadata field {field} is not supported")
        response = get_model_metadata_pb2.GetModelMetadataResponse()
        with self._catalog.acquire(spec) as servable:
            signatures = get_model_metadata_pb2.SignatureDefMap(signature_def=servable.signatures)
            _name_version(response.model_spec, servable.model, servable.version)
        response.metadata[_SIGNATURES].Pack(signatures)
        return response

    def status(
        self, request: get_model_status_pb2.GetModelStatusRequest
    ) -> get_model_status_pb2.GetModelStatusResponse:
        """Returns the state of one version, or of every version seen, the highest first."""
        response = get_model_status_pb2.GetModelStatusResponse()
        for status in self._catalog.statuses(_spec(request)):
            entry = response.model_version_status.add(
                version=status.version, state=int(status.state)
            )
            entry.status.error_code = int(status.code)
            entry.status.error_message = status.message
        return response

    def signature(self, spec: model_pb2.ModelSpec, name: str) -> meta_graph_pb2.SignatureDef | None:
        """Returns the signature of the version that the spec asks for; None if it has none such."""
        with self._catalog.acquire(spec) as servable:
            signatures: Mapping[str, meta_graph_pb2.SignatureDef] = servable.signatures
            return signatures.get(name)


def _spec(request: _HasModelSpec) -> model_pb2.ModelSpec:
    if not request.HasField("model_spec"):
        raise invalid("Missing ModelSpec")
    return request.model_spec


def _name_version(spec: model_pb2.ModelSpec, model: str, version: int, signature: str = "") -> None:
    spec.name = model
    spec.version.value = version
    if signature:
        spec.signature_name = signature
