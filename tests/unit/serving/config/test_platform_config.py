"""--platform_config_file: what it says of SavedModels, what has no effect, what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from google.protobuf import text_format
from logged_lines import logged_lines
from tensorflow.core.protobuf import config_pb2

from hotrow.errors import HotrowError
from hotrow.protos import platform_config_pb2
from hotrow.serving.config.options import ServeOptions
from hotrow.serving.config.platform_config import Platform, read_platform

ADAPTER = "tensorflow.serving.SavedModelBundleSourceAdapterConfig"


def _map(config: str, adapter: str = ADAPTER, name: str = "tensorflow") -> str:
    return (
        f'platform_configs {{ key: "{name}" value {{ source_adapter_config {{ '
        f"[type.googleapis.com/{adapter}] {{ {config} }} }} }} }}"
    )


def _packed(value: bytes) -> str:
    """Returns the form that needs no text of its own: a message as bytes."""
    escaped = "".join(f"\\{byte:03o}" for byte in value)
    return (
        'platform_configs { key: "tensorflow" value { source_adapter_config { '
        f'type_url: "type.googleapis.com/{ADAPTER}" value: "{escaped}" }} }} }}'
    )


def _read(path: Path, text: str, **flags: Any) -> tuple[Platform, list[str]]:
    path.write_text(text)
    options = ServeOptions(model_base_path="/m", platform_config_file=str(path), **flags)
    with logged_lines() as lines:
        return read_platform(options), lines


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "platforms.txt"


EVERYTHING = """
session_config { gpu_options { allow_growth: true } intra_op_parallelism_threads: 3 }
batching_parameters { max_batch_size { value: 7 } num_batch_threads { value: 2 } }
saved_model_tags: "serve" saved_model_tags: "gpu"
enable_model_warmup: true model_warmup_options { num_request_iterations { value: 4 } }
remove_unused_fields_from_bundle_metagraph: true
"""


def _check_everything(platform: Platform) -> None:
    assert platform.session.tags == ("serve", "gpu")
    assert platform.session.config == config_pb2.ConfigProto(
        gpu_options=config_pb2.GPUOptions(allow_growth=True), intra_op_parallelism_threads=3
    )
    assert platform.batching is not None
    assert platform.batching().batching.max_batch_size == 7
    assert platform.batching().threads == 2
    assert (platform.warming.enabled, platform.warming.runs) == (True, 4)


def test_it_says_how_models_are_loaded_and_run(path: Path) -> None:
    platform, lines = _read(path, _map(f"legacy_config {{ {EVERYTHING} }}"))
    _check_everything(platform)
    assert not platform.batching_by_version
    assert lines == []


def test_its_messages_may_be_bytes(path: Path) -> None:
    config = text_format.Parse(EVERYTHING, platform_config_pb2.SessionBundleConfig())
    adapter = platform_config_pb2.SavedModelBundleSourceAdapterConfig(legacy_config=config)
    platform, lines = _read(path, _packed(adapter.SerializeToString()))
    _check_everything(platform)
    assert lines == []


def test_an_example_of_tensorflow_servings_users_is_read(path: Path) -> None:
    """The bytes are those of a legacy_config with a session_config of one field."""
    platform, _ = _read(path, _packed(b"\xc2>\x04\x12\x028\x01"))
    assert platform.session.config == config_pb2.ConfigProto(allow_soft_placement=True)


def test_what_it_does_not_say_has_tensorflow_servings_defaults(path: Path) -> None:
    platform, lines = _read(path, _map(""))
    assert platform.session.tags == ("serve",)
    assert platform.session.config == config_pb2.ConfigProto()
    assert platform.batching is None
    assert not platform.warming.enabled
    assert lines == []


def test_batches_by_version_and_mixed_precision(path: Path) -> None:
    text = 'enable_per_model_batching_params: true mixed_precision: "bfloat16"'
    platform, lines = _read(path, _map(f"legacy_config {{ {text} }}"))
    assert platform.batching_by_version
    rewrites = platform.session.config.graph_options.rewrite_options
    assert rewrites.auto_mixed_precision_onednn_bfloat16
    assert lines == []


def test_flags_that_it_replaces_are_named(path: Path) -> None:
    platform, lines = _read(
        path,
        _map(""),
        enable_batching=True,
        batching_parameters_file="nowhere",
        enable_model_warmup=True,
        saved_model_tags=("gpu",),
        tensorflow_session_parallelism=2,
    )
    assert platform.batching is None
    assert platform.session.tags == ("serve",)
    names = (
        "enable_batching",
        "batching_parameters_file",
        "saved_model_tags",
        "tensorflow_session_parallelism",
    )
    expected = [f"--{n} has no effect: --platform_config_file takes its place" for n in names]
    assert sorted(lines) == sorted(expected)


def test_fields_and_platforms_without_effect_are_named(path: Path) -> None:
    fields = (
        "enable_session_metadata: true prefer_tflite_model: true num_tflite_pools: 2 "
        "model_warmup_options { num_model_warmup_threads { value: 2 } }"
    )
    _, lines = _read(path, _map(f"legacy_config {{ {fields} }}") + _map("", name="torch"))
    assert sorted(lines) == [
        f"{path}: enable_session_metadata has no effect",
        f"{path}: model_warmup_options.num_model_warmup_threads has no effect",
        f"{path}: num_tflite_pools has no effect",
        f"{path}: platform torch has no effect: models are served with 'tensorflow' alone",
        f"{path}: prefer_tflite_model has no effect",
    ]


def test_a_field_that_is_not_known_is_named_by_its_number(path: Path) -> None:
    # A legacy_config with field 1234, a number.
    _, lines = _read(path, _packed(b"\xc2>\x03\x90\x4d\x01"))
    assert lines == [f"{path}: field 1234 has no effect"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        pytest.param("platform_configs: 1", "Invalid protobuf file: '", id="no map"),
        pytest.param(_map("", "hotrow.Nothing"), "Invalid protobuf file: '", id="an unknown type"),
        pytest.param(_map("legacy_config { x: 1 }"), "Invalid protobuf file: '", id="a field"),
        pytest.param("", "it has no platform 'tensorflow'; add one", id="empty"),
        pytest.param(_map("", name="torch"), "it has no platform 'tensorflow'", id="another one"),
        pytest.param(
            'platform_configs { key: "tensorflow" value {} }',
            f"source_adapter_config of 'tensorflow' is missing; give a {ADAPTER}",
            id="no adapter",
        ),
        pytest.param(
            'platform_configs { key: "tensorflow" value { source_adapter_config { '
            'type_url: "type.googleapis.com/a.B" } } }',
            f"source_adapter_config of 'tensorflow' is a.B; give a {ADAPTER}",
            id="another adapter",
        ),
        pytest.param(_packed(b"\xc2>\x7f"), f"the value of {ADAPTER} is damaged", id="damaged"),
        pytest.param(
            _map('legacy_config { session_target: "grpc://there" }'),
            "session_target is not built; leave it out",
            id="sessions elsewhere",
        ),
        pytest.param(
            _map("legacy_config { experimental_fixed_input_tensors {} }"),
            "experimental_fixed_input_tensors is not built; leave it out",
            id="inputs of its own",
        ),
        pytest.param(
            _map("legacy_config { batching_parameters { num_batch_threads { value: 0 } } }"),
            "num_batch_threads is 0; give a number from 1 on",
            id="batching parameters",
        ),
    ],
)
def test_it_is_refused_for(path: Path, text: str, said: str) -> None:
    with pytest.raises(HotrowError) as refused:
        _read(path, text)
    assert said in str(refused.value)
    assert str(path) in str(refused.value)


def test_without_a_file_flags_say_it() -> None:
    options = ServeOptions(model_base_path="/m", enable_batching=True, saved_model_tags=("a", "b"))
    with logged_lines() as lines:
        platform = read_platform(options)
    assert platform.session.tags == ("a", "b")
    assert platform.batching is not None
    assert platform.batching().batching.thread_pool_name == "model_server_batch_threads"
    assert (platform.warming.enabled, platform.warming.runs) == (True, 1)
    assert lines == []
