"""Requests that a version answers before clients reach it.

They come from the version's file, as in TensorFlow Serving. A version without the file runs each
signature that changes no state on zeros, since a first run takes tens of milliseconds.
"""

from __future__ import annotations

from pathlib import Path

from tensorflow_serving.apis import prediction_log_pb2

from hotrow.protos import control_pb2
from hotrow.serving.config.platform_config import WarmUpOptions
from hotrow.serving.wire.status import Code, RequestError, invalid
from hotrow.serving.wire.tf_records import read_records

FILE = Path("assets.extra", "tf_serving_warmup_requests")
"""In a version's directory: TFRecords of PredictionLog."""
MOST_RECORDS = 1000


def warm_up(options: WarmUpOptions, model: str, version_dir: Path) -> control_pb2.WarmUp:
    """Returns the requests that a version answers before it serves.

    Raises:
        RequestError: the file is damaged, has too many records, or one of another kind.
    """
    if not options.enabled:
        return control_pb2.WarmUp()
    if (version_dir / FILE).is_file():
        return control_pb2.WarmUp(requests=_of_file(version_dir / FILE, model, options.runs))
    return control_pb2.WarmUp(zeros=True)


def _of_file(path: Path, model: str, runs: int) -> list[control_pb2.WarmUp.Request]:
    found: list[control_pb2.WarmUp.Request] = []
    try:
        for record in read_records(path):
            if len(found) == MOST_RECORDS:
                raise invalid(
                    f"Number of warmup records exceeds the maximum ({MOST_RECORDS}) at {path}"
                )
            found.append(_of_record(record, model, runs, path))
    except RequestError as err:
        if err.code is not Code.DATA_LOSS:
            raise
        raise RequestError(
            err.code, f"{err}. Please verify your warmup data is in TFRecord format."
        ) from err
    return found


def _of_record(record: bytes, model: str, runs: int, path: Path) -> control_pb2.WarmUp.Request:
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
    return control_pb2.WarmUp.Request(
        method=methods[kind], request=request.SerializeToString(), runs=max(1, runs)
    )
