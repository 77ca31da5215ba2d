"""The configuration of sessions, from flags and a file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from google.protobuf import text_format
from logged_lines import logged_lines
from tensorflow.core.protobuf import config_pb2

from hotrow.errors import InvalidArgumentError, NotFoundError
from hotrow.serving.config.options import ServeOptions
from hotrow.serving.config.session_config import session_config


def _made(expected: str = "", **flags: Any) -> list[str]:
    """Compares what flags make with a text; returns what was logged."""
    with logged_lines() as lines:
        made = session_config(ServeOptions(model_base_path="/m", **flags))
    assert made == text_format.Parse(expected, config_pb2.ConfigProto())
    return lines


@pytest.mark.parametrize(
    ("session", "intra", "inter", "expected"),
    [
        pytest.param(0, 0, 0, "", id="TensorFlow chooses"),
        pytest.param(
            3, 0, 0, "intra_op_parallelism_threads: 3 inter_op_parallelism_threads: 3", id="both"
        ),
        pytest.param(0, 2, 0, "intra_op_parallelism_threads: 2", id="inside an op"),
        pytest.param(3, 0, 2, "inter_op_parallelism_threads: 2", id="one of two goes before both"),
        pytest.param(
            0, 1, 2, "intra_op_parallelism_threads: 1 inter_op_parallelism_threads: 2", id="each"
        ),
    ],
)
def test_threads_are(session: int, intra: int, inter: int, expected: str) -> None:
    _made(
        expected,
        tensorflow_session_parallelism=session,
        tensorflow_intra_op_parallelism=intra,
        tensorflow_inter_op_parallelism=inter,
    )


def test_flags_go_before_the_file(tmp_path: Path) -> None:
    path = tmp_path / "session.txt"
    path.write_text("inter_op_parallelism_threads: 7 intra_op_parallelism_threads: 7")
    _made(
        "inter_op_parallelism_threads: 7 intra_op_parallelism_threads: 2",
        tensorflow_session_config_file=str(path),
        tensorflow_intra_op_parallelism=2,
    )


def test_a_share_of_the_gpu() -> None:
    expected = "gpu_options { per_process_gpu_memory_fraction: 0.5 }"
    _made(expected, per_process_gpu_memory_fraction=0.5)


def test_mixed_precision_is_bfloat16() -> None:
    rewrites = "rewrite_options { auto_mixed_precision_onednn_bfloat16: ON }"
    assert _made(f"graph_options {{ {rewrites} }}", mixed_precision="bfloat16") == []


def test_another_mixed_precision_is_named() -> None:
    assert _made(mixed_precision="float16") == [
        "float16 auto mixed precision is not supported. Valid option: bfloat16"
    ]


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match=r"none\.txt; No such file or directory"):
        _made(tensorflow_session_config_file=str(tmp_path / "none.txt"))
    (tmp_path / "bytes.txt").write_bytes(b"\xff\xfe")
    with pytest.raises(InvalidArgumentError, match=r"Invalid protobuf file: '.*bytes\.txt'"):
        _made(tensorflow_session_config_file=str(tmp_path / "bytes.txt"))
