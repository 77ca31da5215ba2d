"""Which requests are logged: configurations that are refused, and what is taken."""

from __future__ import annotations

from typing import Any

import pytest
from google.protobuf import text_format
from tensorflow_serving.config.model_server_config_pb2 import ModelServerConfig

from hotrow.errors import InvalidArgumentError
from hotrow.serving.config.model_config import check_transition
from hotrow.serving.config.request_log_options import RequestLogOptions
from hotrow.serving.config.request_logging import logging_of
from hotrow.serving.wire.status import Code, RequestError

FILE = 'log_collector_config { type: "file" filename_prefix: "/log/a" }'


def config(logging: str) -> ModelServerConfig:
    return text_format.Parse(
        'model_config_list { config { name: "a" base_path: "/a" model_platform: "tensorflow" '
        f"{logging} }} }}",
        ModelServerConfig(),
    )


@pytest.mark.parametrize(
    ("logging", "code", "text"),
    [
        pytest.param(
            'log_collector_config { type: "s3" }',
            Code.NOT_FOUND,
            'Cannot find LogCollector::Factory for type: s3; model a needs "" or "file"',
            id="an unknown type",
        ),
        pytest.param(
            f"{FILE} sampling_config {{ sampling_rate: 1.5 }}",
            Code.INVALID_ARGUMENT,
            "model a: sampling_rate 1.5 is out of range; give a number from 0 to 1",
            id="a rate above 1",
        ),
        pytest.param(
            f"{FILE} sampling_config {{ per_task_sampling_configs {{ sampling_rate: 1 }} }}",
            Code.INVALID_ARGUMENT,
            "model a: per_task_sampling_configs of its sampling_config is not known here; give "
            "sampling_rate alone",
            id="rates of tasks",
        ),
        pytest.param(
            f"{FILE} sampling_config {{ sampling_rate: -0.5 }}",
            Code.INVALID_ARGUMENT,
            "model a: sampling_rate -0.5 is out of range; give a number from 0 to 1",
            id="a rate below 0",
        ),
        pytest.param(
            f"{FILE} sampling_config {{ sampling_rate: nan }}",
            Code.INVALID_ARGUMENT,
            "model a: sampling_rate nan is out of range; give a number from 0 to 1",
            id="a rate that is no number",
        ),
        pytest.param(
            "sampling_config { sampling_rate: 1 }",
            Code.INVALID_ARGUMENT,
            "model a: filename_prefix '' is no absolute path; give one such as "
            "/var/log/requests/shop, in a folder that is there",
            id="no prefix",
        ),
        pytest.param(
            f'{FILE} custom_logging_config {{ type_url: "x/y" }}',
            Code.INVALID_ARGUMENT,
            "model a: custom_logging_config of type 'x/y' is not known here; leave it out",
            id="another system's configuration",
        ),
    ],
)
def test_a_configuration_is_refused_for(logging: str, code: Code, text: str) -> None:
    with pytest.raises(RequestError) as refused:
        check_transition(ModelServerConfig(), config(f"logging_config {{ {logging} }}"))
    assert (refused.value.code, str(refused.value)) == (code, text)


@pytest.mark.parametrize(
    ("logging", "models"),
    [
        ("", set()),
        ("logging_config {}", set()),
        (f"logging_config {{ {FILE} }}", set()),
        (f"logging_config {{ {FILE} sampling_config {{ sampling_rate: 0.01 }} }}", {"a"}),
    ],
    ids=["nothing", "an empty one", "no rate", "a rate"],
)
def test_only_models_with_a_rate_are_logged(logging: str, models: set[str]) -> None:
    taken = config(logging)
    check_transition(ModelServerConfig(), taken)
    assert logging_of(taken).keys() == models


@pytest.mark.parametrize(
    "flag", ["request_log_file_bytes", "request_log_file_seconds", "request_log_queue_bytes"]
)
def test_bounds_are_at_least_1(flag: str) -> None:
    bounds: Any = {flag: 0}
    with pytest.raises(InvalidArgumentError) as refused:
        RequestLogOptions(**bounds)
    assert str(refused.value).startswith(f"--{flag} 0 is out of range; give a number from 1 to ")
