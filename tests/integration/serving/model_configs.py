"""Configurations of several models, and a server's statuses and answers for each."""

from __future__ import annotations

import shutil
import time
from pathlib import Path
from typing import Any

import grpc
import tensorflow as tf
from google.protobuf import text_format
from tensorflow_serving.apis import get_model_status_pb2, model_management_pb2, predict_pb2
from tensorflow_serving.config.model_server_config_pb2 import ModelServerConfig

WAIT_SECONDS = 60.0


def model(name: str, base: Path | str, *fields: str) -> str:
    """Returns the text of one model's configuration."""
    return (
        f'config {{ name: "{name}" base_path: "{base}" model_platform: "tensorflow" '
        f"{' '.join(fields)} }}"
    )


def specific(*versions: int) -> str:
    """Returns the text of a policy of these versions."""
    listed = " ".join(f"versions: {version}" for version in versions)
    return f"model_version_policy {{ specific {{ {listed} }} }}"


def label(name: str, version: int) -> str:
    """Returns the text of a label."""
    return f'version_labels {{ key: "{name}" value: {version} }}'


def write_config(path: Path, *models: str) -> Path:
    """Writes a configuration in place of the one before, all at once."""
    new = path.with_name(path.name + ".new")
    new.write_text(f"model_config_list {{ {' '.join(models)} }}")
    new.rename(path)
    return path


def publish(source: Path, base: Path, *versions: int | str) -> Path:
    """Copies a version under other names, and renames it when it is whole; returns the base."""
    base.mkdir(exist_ok=True)
    for version in versions:
        shutil.copytree(source, base / f".{version}.tmp")
        (base / f".{version}.tmp").rename(base / str(version))
    return base


def reload(server: Any, *models: str, timeout: float = WAIT_SECONDS) -> Any:
    """Sends HandleReloadConfigRequest."""
    config = text_format.Parse(f"model_config_list {{ {' '.join(models)} }}", ModelServerConfig())
    request = model_management_pb2.ReloadConfigRequest(config=config)
    return server.models.HandleReloadConfigRequest(request, timeout=timeout)


def refusal(call: Any) -> tuple[str, str]:
    """Returns code and text of an error."""
    try:
        call()
    except grpc.RpcError as err:
        return err.code().name, err.details()
    raise AssertionError("it was not refused")


def states(server: Any, name: str) -> dict[int, str]:
    """Returns the states of a model's versions, in the order of the answer."""
    request = get_model_status_pb2.GetModelStatusRequest()
    request.model_spec.name = name
    response = server.models.GetModelStatus(request, timeout=30, wait_for_ready=True)
    state = get_model_status_pb2.ModelVersionStatus.State.Name
    return {entry.version: state(entry.state) for entry in response.model_version_status}


def _states_so_far(server: Any, name: str) -> dict[int, str]:
    try:
        return states(server, name)
    except grpc.RpcError as err:
        if err.code() is not grpc.StatusCode.NOT_FOUND:
            raise
        return {}


def wait_for(server: Any, name: str, expected: dict[int, str]) -> None:
    """Waits until the versions of a model have these states."""
    end = time.monotonic() + WAIT_SECONDS
    while (seen := _states_so_far(server, name)) != expected:
        assert time.monotonic() < end, f"{seen}: " + "\n".join(server.log)
        time.sleep(0.05)


def ask(server: Any, name: str, **choice: Any) -> tuple[float, int]:
    """Returns a model's output for 2.0, and the version that answered.

    Args:
        server: receives the request.
        name: of the model.
        choice: `version` or `label`, neither for the latest.
    """
    request = predict_pb2.PredictRequest()
    request.model_spec.name = name
    if "version" in choice:
        request.model_spec.version.value = choice["version"]
    if "label" in choice:
        request.model_spec.version_label = choice["label"]
    request.inputs["x"].CopyFrom(tf.make_tensor_proto([2.0], tf.float32))
    reply = server.prediction.Predict(request, timeout=30)
    (value,) = reply.outputs["y"].float_val
    return value, reply.model_spec.version.value
