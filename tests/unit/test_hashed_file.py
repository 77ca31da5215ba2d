"""Files whose checksum is known once they are written."""

from __future__ import annotations

import hashlib
import resource

import pytest

from hotrow.hashed_file import HashedFile


def test_size_and_checksum_are_those_of_the_file(tmp_path):
    parts = [b"", b"abc", bytes(range(256)) * 40_000, memoryview(b"xyz")[1:]]
    with HashedFile(tmp_path / "f") as file:
        for part in parts:
            file.write(part)
    content = b"".join(parts)
    assert (tmp_path / "f").read_bytes() == content
    assert file.facts == {"sha256": hashlib.sha256(content).hexdigest(), "bytes": len(content)}


def test_a_file_that_exists_is_not_written_over(tmp_path):
    (tmp_path / "f").write_text("old")
    with pytest.raises(FileExistsError):
        HashedFile(tmp_path / "f")
    assert (tmp_path / "f").read_text() == "old"


def test_a_disk_that_takes_only_a_part_is_an_error_and_not_a_wrong_checksum(tmp_path):
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (5 << 20, before[1]))
    try:
        with pytest.raises(OSError, match="File too large"), HashedFile(tmp_path / "f") as file:
            file.write(bytes(9 << 20))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert file.facts["bytes"] == (tmp_path / "f").stat().st_size == 5 << 20
