"""Which directories are versions, and which of them should serve."""

from __future__ import annotations

from pathlib import Path

import pytest
from google.protobuf import text_format
from logged_lines import logged_lines
from tensorflow_serving.config.model_server_config_pb2 import ModelConfig

from hotrow.serving.lifecycle.versions import VersionSource


class Model:
    """A model's directory, and what is said about it."""

    def __init__(self, base_path: Path, policy: str = "") -> None:
        self.lines: list[str] = []
        config = text_format.Parse(policy, ModelConfig())
        self.source = VersionSource("m", base_path, config.model_version_policy)

    def versions(self) -> dict[int, str] | None:
        with logged_lines(self.lines.append):
            found = self.source.find()
        return None if found is None else {number: path.name for number, path in found.items()}


def _make(base_path: Path, *names: str) -> None:
    for name in names:
        (base_path / name).mkdir()


def test_the_highest_number_is_the_newest(tmp_path: Path) -> None:
    _make(tmp_path, "9", "10", "0008", "v11", ".12", "-13", "1.5", "99999999999999999999", "14 ")
    (tmp_path / "20").write_text("a file")
    assert Model(tmp_path).versions() == {10: "10"}


def test_the_highest_legal_number_is_an_int64(tmp_path: Path) -> None:
    _make(tmp_path, str(2**63 - 1), str(2**63))
    assert Model(tmp_path).versions() == {2**63 - 1: str(2**63 - 1)}


@pytest.mark.parametrize(
    ("policy", "versions"),
    [
        pytest.param("", {3: "3"}, id="the latest by default"),
        pytest.param("latest {}", {3: "3"}, id="the latest"),
        pytest.param("latest { num_versions: 0 }", {3: "3"}, id="at least one"),
        pytest.param("latest { num_versions: 2 }", {2: "002", 3: "3"}, id="the latest two"),
        pytest.param("latest { num_versions: 9 }", {1: "1", 2: "002", 3: "3"}, id="all there are"),
        pytest.param("all {}", {1: "1", 2: "002", 3: "3"}, id="all"),
        pytest.param("specific { versions: 1 }", {1: "1"}, id="one by its name"),
        pytest.param(
            "specific { versions: 2 versions: 1 }", {1: "1", 2: "002"}, id="with leading zeros"
        ),
    ],
)
def test_a_policy_chooses(tmp_path: Path, policy: str, versions: dict[int, str]) -> None:
    _make(tmp_path, "1", "002", "3")
    model = Model(tmp_path, f"model_version_policy {{ {policy} }}")
    assert model.versions() == versions
    assert model.lines == []


def test_a_specific_version_that_is_not_there_is_named_once(tmp_path: Path) -> None:
    _make(tmp_path, "1")
    model = Model(tmp_path, "model_version_policy { specific { versions: 1 versions: 7 } }")
    for _ in range(3):
        assert model.versions() == {1: "1"}
    assert model.lines == [
        "Version 7 of servable m, which was requested to be served as a 'specific' version in the "
        "servable's version policy, was not found in the file system"
    ]


def test_of_two_directories_of_a_number_one_is_taken_and_both_are_named(tmp_path: Path) -> None:
    _make(tmp_path, "7", "007")
    model = Model(tmp_path)
    assert model.versions() == {7: "7"}
    assert model.lines == [
        "Duplicate version directories detected. Version 7 of servable m will be loaded from 7, "
        "007 will be ignored."
    ]


def test_no_version_differs_from_a_base_path_that_cannot_be_read(tmp_path: Path) -> None:
    model = Model(tmp_path)
    assert model.versions() == {}
    assert model.lines[0].startswith(f"No versions of servable m found under base path {tmp_path}.")
    gone = Model(tmp_path / "gone")
    assert gone.versions() is None
    assert gone.lines == [
        f"Could not find base path {tmp_path}/gone for servable m with error No such file or "
        "directory"
    ]
    specific = Model(tmp_path / "gone", "model_version_policy { specific { versions: 1 } }")
    assert specific.versions() is None


def test_what_is_wrong_is_said_again_when_it_was_right_meanwhile(tmp_path: Path) -> None:
    model = Model(tmp_path)
    for _ in range(2):
        model.versions()
        _make(tmp_path, "1")
        assert model.versions() == {1: "1"}
        (tmp_path / "1").rmdir()
        model.versions()
    assert len(model.lines) == 3
