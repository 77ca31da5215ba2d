"""Predict over gRPC, with tensorflow-serving-api's own stub."""

from __future__ import annotations

from typing import Any

import grpc
import numpy as np
import pytest
from integration.serving.grpc_calls import predict_request
from tensorflow_serving.apis import predict_pb2


def test_a_tensorflow_1_model_answers_with_values_and_what_answered(half_plus_two: Any) -> None:
    response = half_plus_two.predict(x=np.array([[1.0], [2.0], [5.0]], np.float32))
    assert list(response.outputs["y"].float_val) == [2.5, 3.0, 4.5]
    assert [dim.size for dim in response.outputs["y"].tensor_shape.dim] == [3, 1]
    assert response.outputs["y"].tensor_content == b""
    assert response.model_spec.name == "half"
    assert response.model_spec.version.value == 123
    assert response.model_spec.signature_name == "serving_default"


def test_a_tensorflow_2_model_takes_its_default_for_an_absent_input(half_plus_two_tf2: Any) -> None:
    assert list(half_plus_two_tf2.predict().outputs["y"].float_val) == [2.0]
    response = half_plus_two_tf2.predict(x=np.array([4.0], np.float32))
    assert list(response.outputs["y"].float_val) == [4.0]


def test_typed_values_and_tensor_content_mean_the_same(half_plus_two: Any) -> None:
    request = predict_pb2.PredictRequest()
    request.model_spec.name = "half"
    proto = request.inputs["x"]
    proto.dtype = 1
    proto.tensor_shape.dim.add(size=3)
    proto.tensor_shape.dim.add(size=1)
    proto.float_val.extend([1.0, 8.0])  # the last one is repeated
    typed = half_plus_two.prediction.Predict(request, timeout=30)
    assert list(typed.outputs["y"].float_val) == [2.5, 6.0, 6.0]
    proto.ClearField("float_val")
    proto.tensor_content = np.array([1.0, 8.0, 8.0], "<f4").tobytes()
    assert half_plus_two.prediction.Predict(request, timeout=30) == typed


def test_declared_shapes_are_not_checked(half_plus_two: Any) -> None:
    response = half_plus_two.predict(x=np.zeros((2, 3, 4), np.float32))
    assert [dim.size for dim in response.outputs["y"].tensor_shape.dim] == [2, 3, 4]


def test_an_output_filter_chooses_the_outputs(zoo: Any) -> None:
    request = predict_request("zoo", "add", a=np.array([1.5], np.float32), b=np.array([2]))
    both = zoo.prediction.Predict(request, timeout=30)
    assert set(both.outputs) == {"sum", "b"}
    request.output_filter.append("sum")
    one = zoo.prediction.Predict(request, timeout=30)
    assert set(one.outputs) == {"sum"}
    assert list(one.outputs["sum"].float_val) == [3.5]
    assert one.model_spec.signature_name == "add"


def test_strings_come_back_as_they_went(zoo: Any) -> None:
    words = [b"", b"\xff\x00", "ä".encode()]
    response = zoo.prediction.Predict(predict_request("zoo", "echo", text=words), timeout=30)
    assert list(response.outputs["text"].string_val) == words


def test_a_version_may_be_asked_for(half_plus_two: Any) -> None:
    request = predict_request("half", x=np.array([[2.0]], np.float32))
    request.model_spec.version.value = 123
    response = half_plus_two.prediction.Predict(request, timeout=30)
    assert response.model_spec.version.value == 123


def test_messages_larger_than_grpcs_default_pass_both_ways(half_plus_two: Any) -> None:
    rows = 3_000_000  # 12 MB, above the 4 MB that gRPC allows by default
    options = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]
    with grpc.insecure_channel(f"127.0.0.1:{half_plus_two.port}", options) as channel:
        stub = type(half_plus_two.prediction)(channel)
        response = stub.Predict(
            predict_request("half", x=np.ones((rows, 1), np.float32)), timeout=120
        )
    assert len(response.outputs["y"].float_val) == rows


def test_a_call_may_be_compressed(half_plus_two: Any) -> None:
    request = predict_request("half", x=np.ones((1000, 1), np.float32))
    plain = half_plus_two.prediction.Predict(request, timeout=30)
    compressed = half_plus_two.prediction.Predict(
        request, timeout=30, compression=grpc.Compression.Gzip
    )
    assert compressed == plain


def test_the_clients_deadline_ends_the_run(zoo: Any) -> None:
    request = predict_request("zoo", "spin", turns=np.int64(2**60))
    with pytest.raises(grpc.RpcError) as caught:
        zoo.prediction.Predict(request, timeout=0.5)
    assert caught.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
    quick = zoo.prediction.Predict(predict_request("zoo", "spin", turns=np.int64(3)), timeout=30)
    assert list(quick.outputs["turned"].int64_val) == [3]


def test_state_of_a_model_is_kept_between_requests(
    testdata: Any, tmp_path: Any, start_server: Any
) -> None:
    (tmp_path / "counter").symlink_to(testdata / "saved_model_counter")
    server = start_server("counter", tmp_path / "counter")
    server.wait_ready()
    for signature, expected in (("incr_counter", 1.0), ("incr_counter", 2.0), ("get_counter", 2.0)):
        response = server.prediction.Predict(predict_request("counter", signature), timeout=30)
        assert list(response.outputs["output"].float_val) == [expected]
    by = predict_request("counter", "incr_counter_by", delta=np.float32(3))
    assert list(server.prediction.Predict(by, timeout=30).outputs["output"].float_val) == [5.0]
