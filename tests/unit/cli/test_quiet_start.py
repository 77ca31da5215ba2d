"""TensorFlow's greetings are dropped; everything else that an import prints is kept."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

GREETING = (
    "WARNING: All log messages before absl::InitializeLog() is called are written to STDERR\n"
    "I0000 00:00:1.2 3 port.cc:153] oneDNN custom operations are on.\n"
    "E0000 00:00:1.2 3 cuda_platform.cc:52] failed call to cuInit: UNKNOWN ERROR (303)\n"
)
PROBLEM = "E0000 00:00:1.2 3 memory.cc:1] out of memory\n"
TENSORFLOW = f"""
import os
os.write(2, {GREETING.encode()!r})
os.write(2, {PROBLEM.encode()!r})
class config:
    list_logical_devices = staticmethod(lambda: os.write(2, {GREETING.encode()!r}))
"""


@pytest.fixture
def start(tmp_path):
    """Runs `import_tensorflow_quietly` with another TensorFlow and returns what was printed."""

    def run(tensorflow, level="2"):
        (tmp_path / "tensorflow.py").write_text(tensorflow)
        program = (
            f"import sys; sys.path.insert(0, {str(tmp_path)!r});"
            "from hotrow.cli.quiet_start import import_tensorflow_quietly;"
            "import_tensorflow_quietly(); print('after', file=sys.stderr)"
        )
        return subprocess.run(
            [sys.executable, "-c", program],
            capture_output=True,
            text=True,
            check=False,
            env=os.environ | {"TF_CPP_MIN_LOG_LEVEL": level},
        ).stderr

    return run


def test_greetings_are_dropped_and_problems_kept(start):
    assert start(TENSORFLOW) == PROBLEM + "after\n"


def test_a_user_who_wants_to_see_everything_does(start):
    assert start(TENSORFLOW, level="0") == GREETING + PROBLEM + "after\n"


def test_an_import_that_fails_still_says_why(start):
    printed = start(TENSORFLOW + "raise ImportError('no libfoo')\n")
    assert printed.startswith(PROBLEM)
    assert printed.endswith("ImportError: no libfoo\n")
