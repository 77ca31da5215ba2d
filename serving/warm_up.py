"""Requests that a version answers before clients reach it.

Those of its file, as TensorFlow Serving reads it; and where it has none, one of zeros for each
signature whose run changes nothing, since the first run of a signature takes tens of milliseconds.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tensorflow as tf
from tensorflow.core.framework import tensor_pb2
from tensorflow.core.protobuf import saved_model_pb2
from tensorflow_serving.apis import predict_pb2, prediction_log_pb2

from hotrow.protos import control_pb2
from hotrow.serving.pure_signatures import pure_signatures
from hotrow.serving.status import Code, RequestError, invalid

FILE = Path("assets.extra", "tf_serving_warmup_requests")
"""In a version's directory: TFRecords of PredictionLog."""
MOST_RECORDS = 1000

# Of a run with zeros: a model that takes longer is not waited for.
_ZEROS_MILLIS = 1000
# The first run prepares, the second one tells how long later ones take.
_ZEROS_RUNS = 2
# Larger graphs are not looked into.
_MOST_GRAPH_BYTES = 256 << 20


@dataclass(frozen=True)
class WarmUpOptions:
    """Whether versions warm up, and how often each request of the file runs."""

    enabled: bool = True
    runs: int = 1


def warm_ups(
    options: WarmUpOptions,
    model: str,
    version_dir: Path,
    tags: tuple[str, ...],
    log: Callable[[str], None],
) -> list[control_pb2.WarmUp]:
    """Returns the requests for a version.

    Raises:
        RequestError: the file is damaged, has too many records, or one of another kind.
    """
    if not options.enabled:
        return []
    if (version_dir / FILE).is_file():
        return _of_file(version_dir / FILE, model, options.runs)
    try:
        return _of_zeros(version_dir, model, tags)
    except Exception as err:
        # It is no more than a courtesy to the first clients.
        log(f"{model}: {version_dir.name} does not warm up: {type(err).__name__}: {err}")
        return []


def _of_file(path: Path, model: str, runs: int) -> list[control_pb2.WarmUp]:
    found: list[control_pb2.WarmUp] = []
    try:
        for record in tf.data.TFRecordDataset(str(path)).as_numpy_iterator():
            if len(found) == MOST_RECORDS:
                raise invalid(
                    f"Number of warmup records exceeds the maximum ({MOST_RECORDS}) at {path}"
                )
            found.append(_of_record(record, model, runs, path))
    except tf.errors.DataLossError as err:
        raise RequestError(
            Code.DATA_LOSS,
            f"{err.message}. Please verify your warmup data is in TFRecord format.",
        ) from err
    return found


def _of_record(record: bytes, model: str, runs: int, path: Path) -> control_pb2.WarmUp:
    log = prediction_log_pb2.PredictionLog()
    try:
        log.ParseFromString(record)
    except Exception as err:
        raise invalid(f"Failed to parse warmup record: {record!r} from {path}") from err
    kind = log.WhichOneof("log_type")
    methods = {
        "predict_log": control_pb2.WarmUp.PREDICT,
        "classify_log": control_pb2.WarmUp.CLASSIFY,
        "regress_log": control_pb2.WarmUp.REGRESS,
        "multi_inference_log": control_pb2.WarmUp.MULTI_INFERENCE,
    }
    if kind not in methods:
        number = log.DESCRIPTOR.fields_by_name[kind].number if kind else 0
        raise RequestError(
            Code.UNIMPLEMENTED, f"Unsupported log_type for warmup: {number} ({kind or 'none'})"
        )
    request = getattr(log, kind).request
    specs = (
        [task.model_spec for task in request.tasks]
        if kind == "multi_inference_log"
        else [request.model_spec]
    )
    for spec in specs:
        # The model and the version of the record are not used.
        spec.name = model
        spec.ClearField("version_choice")
    return control_pb2.WarmUp(
        method=methods[kind], request=request.SerializeToString(), runs=max(1, runs)
    )


def _of_zeros(version_dir: Path, model: str, tags: tuple[str, ...]) -> list[control_pb2.WarmUp]:
    graph = version_dir / "saved_model.pb"
    if not graph.is_file() or graph.stat().st_size > _MOST_GRAPH_BYTES:
        return []
    saved = saved_model_pb2.SavedModel.FromString(graph.read_bytes())
    found = []
    for meta_graph in saved.meta_graphs:
        if set(meta_graph.meta_info_def.tags) != set(tags):
            continue
        for name in pure_signatures(meta_graph):
            request = predict_pb2.PredictRequest()
            request.model_spec.name = model
            request.model_spec.signature_name = name
            for alias, info in meta_graph.signature_def[name].inputs.items():
                request.inputs[alias].CopyFrom(_zeros(info))
            found.append(
                control_pb2.WarmUp(
                    method=control_pb2.WarmUp.PREDICT,
                    request=request.SerializeToString(),
                    runs=_ZEROS_RUNS,
                    may_fail=True,
                    most_millis=_ZEROS_MILLIS,
                )
            )
    return found


def _zeros(info: Any) -> tensor_pb2.TensorProto:
    """Returns a tensor of zeros or empty strings: one row, and one of all that is not declared."""
    proto = tensor_pb2.TensorProto(dtype=info.dtype)
    shape = info.tensor_shape
    for size in [-1] if shape.unknown_rank else [dim.size for dim in shape.dim]:
        proto.tensor_shape.dim.add(size=1 if size < 0 else size)
    return proto
