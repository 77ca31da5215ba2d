"""Folders of temporary files: those of killed supervisors are removed, all others stay."""

from __future__ import annotations

import fcntl
import os
import socket
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from hotrow.serving.data_plane.private_folder import private_folder, remove_left_folders


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The directory of temporary files."""
    # A short path, since that of a socket has at most 107 characters.
    with tempfile.TemporaryDirectory() as short:
        (Path(short) / "t").symlink_to(tmp_path)
        monkeypatch.setattr(tempfile, "tempdir", f"{short}/t")
        yield Path(short) / "t"


def folder(temporary: Path, name: str, *sockets: str) -> Path:
    """Returns a folder with sockets on which no process listens."""
    made = temporary / name
    made.mkdir()
    for one in sockets:
        with socket.socket(socket.AF_UNIX) as bound:
            bound.bind(str(made / one))
    return made


def test_what_a_killed_supervisor_left_is_removed(temporary: Path) -> None:
    left = [
        folder(temporary, "hotrow-a", "backend", "control", "public"),
        folder(temporary, "hotrow-b", "control"),
    ]
    (left[0] / "cuts").mkdir()
    (left[0] / "cuts" / "1.rows").write_bytes(b"rows")
    assert [path.name for path in remove_left_folders()] == ["hotrow-a", "hotrow-b"]
    assert not any(path.exists() for path in left)
    assert remove_left_folders() == []


def test_what_is_used_or_another_thing_stays(temporary: Path) -> None:
    held = folder(temporary, "hotrow-held", "control")
    answered = folder(temporary, "hotrow-answered")
    folder(temporary, "hotrow-without-sockets")
    folder(temporary, "others", "control")
    (temporary / "hotrow-file").touch()
    (temporary / "hotrow-link").symlink_to(folder(temporary, "elsewhere", "control"))
    descriptor = os.open(held, os.O_RDONLY)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    before = sorted(temporary.iterdir())
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(answered / "control"))
        listener.listen()
        assert remove_left_folders() == []
    assert sorted(temporary.iterdir()) == before
    os.close(descriptor)
    assert sorted(path.name for path in remove_left_folders()) == ["hotrow-answered", "hotrow-held"]


def test_a_folder_in_use_is_held(temporary: Path) -> None:
    with private_folder() as used, socket.socket(socket.AF_UNIX) as bound:
        bound.bind(str(used / "control"))
        assert remove_left_folders() == []
    assert not used.exists()
