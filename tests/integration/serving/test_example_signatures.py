"""Classify and Regress when a signature, or what it gives, is not of their usual form."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
import tensorflow as tf
from integration.serving.conftest import Server
from tensorflow.core.protobuf import saved_model_pb2
from tensorflow_serving.apis import classification_pb2, regression_pb2

# What the graph always gives, for as many examples as LABELS has rows.
LABELS = [["low", "high"], ["few", "many"], ["", "all"]]
CONSTANTS = {"labels": LABELS, "two_labels": LABELS[:2], "two_scores": [[0.5, 0.5], [1.0, 0.0]]}
# Aliases and tensors of half_plus_two's graph, of which `a` is a scalar.
EXAMPLES = {"inputs": "tf_example:0"}
SIGNATURES: dict[str, tuple[dict[str, str], dict[str, str]]] = {
    "two_inputs": ({**EXAMPLES, "x": "x:0"}, {"scores": "y:0", "outputs": "y:0"}),
    "three_outputs": (EXAMPLES, {"scores": "y:0", "b": "y:0", "c": "y:0"}),
    "scalar": (EXAMPLES, {"scores": "a/read:0"}),
    "scalar_value": (EXAMPLES, {"outputs": "a/read:0"}),
    "labels": (EXAMPLES, {"classes": "y:0"}),
    "labels_only": (EXAMPLES, {"classes": "labels:0"}),
    "other_rows_labels": (EXAMPLES, {"classes": "two_labels:0"}),
    "other_rows_scores": (EXAMPLES, {"scores": "two_scores:0"}),
    "other_rows_value": (EXAMPLES, {"outputs": "save/RestoreV2/tensor_names:0"}),
}


@pytest.fixture(scope="module")
def server(two: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server of half_plus_two with these signatures beside its own."""
    version = tmp_path_factory.mktemp("examples") / "half" / "1"
    shutil.copytree(two, version)
    path = version / "saved_model.pb"
    saved = saved_model_pb2.SavedModel.FromString(path.read_bytes())
    for name, values in CONSTANTS.items():
        constant = tf.make_tensor_proto(values)
        node = saved.meta_graphs[0].graph_def.node.add(name=name, op="Const")
        node.attr["value"].tensor.CopyFrom(constant)
        node.attr["dtype"].type = constant.dtype
    for name, tensors in SIGNATURES.items():
        signature = saved.meta_graphs[0].signature_def[name]
        for infos, named in zip((signature.inputs, signature.outputs), tensors, strict=True):
            for alias, tensor in named.items():
                infos[alias].name = tensor
                infos[alias].dtype = 7 if "tf_example" in tensor else 1
    path.write_bytes(saved.SerializeToString())
    server = Server("half", version.parent)
    try:
        server.wait_ready()
        yield server
    finally:
        server.close()


def _fill(request: Any, signature: str) -> None:
    request.model_spec.name = "half"
    request.model_spec.signature_name = signature
    for _ in LABELS:
        feature = request.input.example_list.examples.add().features.feature["x"]
        feature.float_list.value.append(2.0)


def _refusal(server: Server, request: Any, signature: str) -> str:
    _fill(request, signature)
    is_classify = isinstance(request, classification_pb2.ClassificationRequest)
    method = server.prediction.Classify if is_classify else server.prediction.Regress
    with pytest.raises(grpc.RpcError) as refused:
        method(request, timeout=30)
    assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    return str(refused.value.details())


def test_classify_gives_labels_without_scores_the_score_0(server: Server) -> None:
    request = classification_pb2.ClassificationRequest()
    _fill(request, "labels_only")
    result = server.prediction.Classify(request, timeout=30).result
    assert [[c.label for c in one.classes] for one in result.classifications] == LABELS
    assert {c.score for one in result.classifications for c in one.classes} == {0.0}


@pytest.mark.parametrize(
    ("signature", "text"),
    [
        pytest.param("two_inputs", "Expected one input Tensor.", id="it has two inputs"),
        pytest.param(
            "three_outputs", "Expected one or two output Tensors, found 3", id="it has 3 outputs"
        ),
        pytest.param(
            "scalar",
            "Expected Tensor shape: [batch_size num_classes] but got []",
            id="scores are a scalar",
        ),
        pytest.param(
            "labels", "Expected classes Tensor of DT_STRING. Got: DT_FLOAT", id="labels are numbers"
        ),
        pytest.param(
            "other_rows_scores",
            "Expected scores output batch size of 3. Got: 2",
            id="there are other rows of scores",
        ),
        pytest.param(
            "other_rows_labels",
            "Expected classes output batch size of 3. Got: 2",
            id="there are other rows of labels",
        ),
    ],
)
def test_classify_refuses_a_signature_when(server: Server, signature: str, text: str) -> None:
    request = classification_pb2.ClassificationRequest()
    assert _refusal(server, request, signature) == text


@pytest.mark.parametrize(
    ("signature", "text"),
    [
        pytest.param("two_inputs", "Expected one input Tensor.", id="it has two inputs"),
        pytest.param("three_outputs", "Expected one output Tensor.", id="it has 3 outputs"),
        pytest.param(
            "scalar_value",
            "Expected output Tensor shape to be either [batch_size] or [batch_size, 1] but got []",
            id="the value is a scalar",
        ),
        pytest.param(
            "other_rows_value",
            "Input batch size did not match output batch size: 3 vs. 5",
            id="there are other rows",
        ),
    ],
)
def test_regress_refuses_a_signature_when(server: Server, signature: str, text: str) -> None:
    assert _refusal(server, regression_pb2.RegressionRequest(), signature) == text
