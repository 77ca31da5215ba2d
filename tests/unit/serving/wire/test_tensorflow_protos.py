"""A process may have TensorFlow's protos without TensorFlow, and says so to whom wants more."""

from __future__ import annotations

import importlib.metadata
import subprocess
import sys
from pathlib import Path

import tensorflow as tf

from hotrow.serving.wire.tensorflow_protos import (
    import_no_tensorflow,
    tensorflow_folder,
    tensorflow_version,
)

_START = "import hotrow.serving.wire.tensorflow_protos as protos; protos.import_no_tensorflow(); "


def _run(program: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", _START + program], capture_output=True, text=True, check=False
    )


def test_protos_are_there_and_tensorflow_is_not() -> None:
    result = _run(
        "from tensorflow.core.framework import tensor_pb2; "
        "from tensorflow_serving.apis import predict_pb2; "
        "request = predict_pb2.PredictRequest(inputs={'x': tensor_pb2.TensorProto(dtype=1)}); "
        "print(type(request).FromString(request.SerializeToString()).inputs['x'].dtype, "
        "'libtensorflow' in open('/proc/self/maps').read())"
    )
    assert (result.stdout, result.stderr) == ("1 False\n", "")


def test_whoever_wants_more_learns_why_it_is_not_there() -> None:
    why = "this process has TensorFlow's protos alone"
    assert (
        f"tensorflow.constant is not here: {why}"
        in _run("import tensorflow as tf; tf.constant(1)").stderr
    )
    assert "tensorflow_protos.py" in _run("from tensorflow import keras").stderr
    assert "No module named 'tensorflow.python'" in _run("import tensorflow.python").stderr


def test_a_process_that_has_tensorflow_keeps_it() -> None:
    import_no_tensorflow()
    assert sys.modules["tensorflow"] is tf
    assert tf.constant(1).numpy() == 1


def test_where_tensorflow_is_and_its_version_are_known_without_it() -> None:
    assert tensorflow_folder() == Path(tf.__file__).parent
    assert tensorflow_version() == tf.__version__ == importlib.metadata.version("tensorflow")
    result = _run(
        "import hotrow.serving.wire.tensorflow_protos as protos; print(protos.tensorflow_folder())"
    )
    assert result.stdout == f"{tensorflow_folder()}\n"
