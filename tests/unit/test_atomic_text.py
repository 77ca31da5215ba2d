"""Small files are replaced as a whole, and errors name them."""

from __future__ import annotations

from pathlib import Path

import pytest
from full_disk import full_disk

from hotrow.atomic_text import write_atomically


def test_a_file_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    for text in ("é\n", "longer than before\n", "longer than Before\n", ""):
        write_atomically(path, text)
        assert path.read_text(encoding="utf-8") == text
    assert list(tmp_path.iterdir()) == [path]


def test_a_full_disk_leaves_what_was_there_and_is_named(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    write_atomically(path, "before")
    with full_disk(3):
        write_atomically(path, "before")  # nothing to do
        with pytest.raises(OSError, match=r"File too large: '.*/a.json'"):
            write_atomically(path, "behind")
    assert path.read_text() == "before"
    assert list(tmp_path.iterdir()) == [path]


def test_a_folder_that_is_missing_is_named(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"none/a.json"):
        write_atomically(tmp_path / "none" / "a.json", "x")
