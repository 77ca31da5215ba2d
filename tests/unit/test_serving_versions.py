"""Which directories are versions."""

from __future__ import annotations

from pathlib import Path

import pytest

from hotrow.errors import NotFoundError, UnimplementedError
from hotrow.serving.versions import newest_version, resolve_base_path


def test_the_highest_number_is_the_newest(tmp_path: Path) -> None:
    for name in ("9", "10", "0008", "v11", ".12", "-13", "1.5", "99999999999999999999", "14 "):
        (tmp_path / name).mkdir()
    (tmp_path / "20").write_text("a file")
    assert newest_version(tmp_path) == {10: tmp_path / "10"}


def test_the_highest_legal_number_is_an_int64(tmp_path: Path) -> None:
    for name in (str(2**63 - 1), str(2**63)):
        (tmp_path / name).mkdir()
    assert newest_version(tmp_path) == {2**63 - 1: tmp_path / str(2**63 - 1)}


def test_no_version_differs_from_a_base_path_that_cannot_be_read(tmp_path: Path) -> None:
    assert newest_version(tmp_path) == {}
    assert newest_version(tmp_path / "gone") is None


def test_a_relative_base_path_becomes_absolute(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "models").mkdir()
    monkeypatch.chdir(tmp_path)
    assert resolve_base_path("models", "m") == tmp_path / "models"


def test_a_base_path_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match=f"Could not find base path {tmp_path}/x for servable"):
        resolve_base_path(str(tmp_path / "x"), "m")


def test_a_uri_is_not_built_yet() -> None:
    with pytest.raises(UnimplementedError, match="s3://bucket/m"):
        resolve_base_path("s3://bucket/m", "m")
