"""What TensorFlow Serving promises its users, row by row, and which tests show it here.

`PYTHONPATH=tests python -m integration.serving.contract` writes docs/tfserving_compatibility.md
from it; tests/unit/serving/test_compatibility.py holds both against each other and the tests.
"""

from __future__ import annotations

from integration.serving.contract import (
    configuration,
    flags,
    grpc_errors,
    grpc_methods,
    lifecycle,
    metrics,
    rest,
)
from integration.serving.contract.row import Row

SECTIONS: dict[str, tuple[Row, ...]] = {
    part.TITLE: part.ROWS
    for part in (grpc_methods, grpc_errors, rest, flags, configuration, lifecycle, metrics)
}

# Tests in tests/integration/serving that are about no promise of TensorFlow Serving: files, tests.
OURS = frozenset(
    {
        "test_adoption.py",
        "test_client_commands.py",
        "test_cut_files.py",
        "test_exported_model.py",
        "test_leaving_clients.py",
        "test_list_columns.py",
        "test_ragged_keras_model.py",
        "test_rewinds.py",
        "test_partition.py",
        "test_priority.py",
        "test_data_plane.py::test_a_run_that_takes_longer_than_others_keeps_none_waiting",
        "test_single_loads.py",
        "test_process.py::test_tensorflow_is_in_the_process_that_answers_alone",
        "test_tensors.py::test_a_name_that_is_no_text_is_refused",
    }
)
