"""GetModelMetadata over both wires, against TensorFlow Serving's own golden files."""

from __future__ import annotations

import json
from typing import Any

from tensorflow_serving.apis import get_model_metadata_pb2


def test_rest_metadata_of_a_tensorflow_1_model_equals_the_golden_file(
    testdata: Any, tmp_path: Any, start_server: Any
) -> None:
    golden = json.loads(
        (testdata / "saved_model_half_plus_two_2_versions_metadata.json").read_text()
    )
    base = tmp_path / "model"
    base.mkdir()
    (base / "00000123").symlink_to(testdata / "saved_model_half_plus_two_2_versions" / "00000123")
    server = start_server(golden["model_spec"]["name"], base)
    server.wait_ready()
    status, body = server.rest(f"/v1/models/{server.model}/versions/123/metadata")
    assert status == 200
    assert json.loads(body) == golden


def test_rest_metadata_of_a_tensorflow_2_model_equals_the_golden_file(
    testdata: Any, half_plus_two_tf2: Any
) -> None:
    golden = json.loads(
        (testdata / "saved_model_half_plus_two_tf2_2_versions_metadata.json").read_text()
    )
    _, body = half_plus_two_tf2.rest("/v1/models/half2/metadata")
    signatures = json.loads(body)["metadata"]["signature_def"]["signature_def"]
    expected = golden["metadata"]["signature_def"]["signature_def"]
    # The golden file is older than signature defaults, which this model has.
    assert signatures["serving_default"]["defaults"]["x"]["float_val"] == [0.0]
    for signature in (*signatures.values(), *expected.values()):
        signature.pop("defaults", None)
    assert signatures == expected


def test_grpc_metadata_names_the_version_and_packs_the_signatures(half_plus_two: Any) -> None:
    request = get_model_metadata_pb2.GetModelMetadataRequest(metadata_field=["signature_def"])
    request.model_spec.name = "half"
    response = half_plus_two.prediction.GetModelMetadata(request, timeout=30)
    signatures = get_model_metadata_pb2.SignatureDefMap()
    assert response.metadata["signature_def"].Unpack(signatures)
    assert response.model_spec.version.value == 123
    assert response.model_spec.signature_name == ""
    assert signatures.signature_def["serving_default"].inputs["x"].name == "x:0"
