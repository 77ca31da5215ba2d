"""Configurations of models that are refused, and their texts."""

from __future__ import annotations

from pathlib import Path

import pytest
from google.protobuf import text_format
from tensorflow_serving.config.model_server_config_pb2 import ModelServerConfig

from hotrow.serving.config.model_config import check_transition, local_base_path, single_model
from hotrow.serving.wire.status import Code, RequestError

PLATFORM = 'model_platform: "tensorflow"'


def config(*models: str) -> ModelServerConfig:
    listed = "".join(f"config {{ {model} }}" for model in models)
    return text_format.Parse(f"model_config_list {{ {listed} }}", ModelServerConfig())


OLD = config(f'name: "a" base_path: "/a" {PLATFORM}')


@pytest.mark.parametrize(
    ("new", "text"),
    [
        pytest.param(
            config(*[f'name: "b" base_path: "/b" {PLATFORM}'] * 2),
            "Illegal to list model b multiple times in config list",
            id="a name twice",
        ),
        pytest.param(
            config(f'name: "b" base_path: "b/c" {PLATFORM}'),
            "Expected model b to have an absolute path or URI; got base_path()=b/c",
            id="a relative path",
        ),
        pytest.param(
            config('name: "a" base_path: "/a" model_platform: "torch"'),
            "Illegal to change a model's platform. For model a platform was tensorflow and new "
            "platform requested is torch",
            id="a platform that changes",
        ),
        pytest.param(
            config('name: "b" base_path: "/b" model_platform: "torch"'),
            "Model b requests unsupported platform torch",
            id="another platform",
        ),
        pytest.param(
            config('name: "b" base_path: "/b"'),
            "Illegal setting neither ModelServerConfig::model_type (deprecated) nor "
            "ModelServerConfig::model_platform, model name is b",
            id="no platform",
        ),
        pytest.param(
            config(f'name: "b" base_path: "/b" model_type: TENSORFLOW {PLATFORM}'),
            "Illegal setting both ModelServerConfig::model_type (deprecated) and "
            "ModelServerConfig::model_platform.",
            id="platform and type",
        ),
        pytest.param(
            config('name: "b" base_path: "/b" model_type: OTHER'),
            "ModelServerConfig::model_type choice 2 not supported.",
            id="another type",
        ),
    ],
)
def test_a_list_is_refused_for(new: ModelServerConfig, text: str) -> None:
    with pytest.raises(RequestError) as refused:
        check_transition(OLD, new)
    assert (refused.value.code, str(refused.value)) == (Code.INVALID_ARGUMENT, text)


def test_a_list_is_only_followed_by_a_list() -> None:
    with pytest.raises(RequestError, match="It is only legal to transition from one") as refused:
        check_transition(OLD, ModelServerConfig())
    assert refused.value.code is Code.FAILED_PRECONDITION


def test_a_custom_configuration_is_refused() -> None:
    custom = text_format.Parse("custom_model_config {}", ModelServerConfig())
    with pytest.raises(RequestError, match="does not yet support custom model config"):
        check_transition(ModelServerConfig(), custom)


def test_what_is_right_is_taken() -> None:
    check_transition(ModelServerConfig(), OLD)
    check_transition(OLD, config('name: "a" base_path: "/z" model_type: TENSORFLOW'))
    check_transition(OLD, config())
    check_transition(ModelServerConfig(), ModelServerConfig())


def test_a_file_uri_is_a_path() -> None:
    (model,) = single_model("m", "file:///a/b").model_config_list.config
    assert local_base_path(model) == Path("/a/b")


def test_a_path_on_another_machine_is_refused() -> None:
    with pytest.raises(RequestError, match=r"model m: base path s3://bucket/m is not on this"):
        check_transition(ModelServerConfig(), single_model("m", "s3://bucket/m"))
