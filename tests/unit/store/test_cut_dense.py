"""The dense weights of a cut: packed, unpacked, and what is no such archive."""

from __future__ import annotations

import io
import tarfile

import pytest

from hotrow.errors import DataLossError
from hotrow.store.cut_dense import pack, unpack

NAMES = ("variables.index", "variables.data-00000-of-00001")


def tar_of(*entries):
    """Returns an archive of (name, content) and (name, content, type)."""
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w") as tar:
        for name, content, *kind in entries:
            entry = tarfile.TarInfo(name)
            entry.type = kind[0] if kind else tarfile.REGTYPE
            entry.linkname = "/etc/passwd" if kind else ""
            entry.size = len(content)
            tar.addfile(entry, io.BytesIO(content))
    return archive.getvalue()


@pytest.fixture
def checkpoint(tmp_path):
    """Prefix of a checkpoint."""
    (tmp_path / "ckpt.index").write_bytes(b"index")
    (tmp_path / "ckpt.data-00000-of-00001").write_bytes(bytes(range(256)) * 100)
    return tmp_path / "ckpt"


def test_what_was_packed_is_unpacked(checkpoint, tmp_path):
    (tmp_path / "to").mkdir()
    prefix = unpack(pack(checkpoint), tmp_path / "to")
    assert prefix == tmp_path / "to" / "variables"
    assert sorted(p.name for p in (tmp_path / "to").iterdir()) == sorted(NAMES)
    assert (tmp_path / "to" / NAMES[0]).read_bytes() == b"index"
    assert (tmp_path / "to" / NAMES[1]).read_bytes() == bytes(range(256)) * 100


def test_equal_checkpoints_give_equal_bytes(checkpoint, tmp_path):
    first = pack(checkpoint)
    for file in tmp_path.iterdir():
        file.touch()
        file.chmod(0o600)
    for file in list(tmp_path.iterdir()):
        file.rename(file.with_name(file.name.replace("ckpt", "other")))
    assert pack(tmp_path / "other") == first


@pytest.mark.parametrize(
    "blob",
    [
        b"",
        b"x" * 2000,
        tar_of(),
        tar_of((NAMES[0], b"i")),
        tar_of((NAMES[1], b"d"), (NAMES[0], b"i")),
        tar_of((NAMES[0], b"i"), (NAMES[1], b"d"), ("more", b"m")),
        tar_of((NAMES[0], b"i"), ("../" + NAMES[1], b"d")),
        tar_of((NAMES[0], b"i"), ("/tmp/" + NAMES[1], b"d")),
        tar_of((NAMES[0], b"", tarfile.SYMTYPE), (NAMES[1], b"d")),
        tar_of((NAMES[0], b"", tarfile.LNKTYPE), (NAMES[1], b"d")),
        tar_of((NAMES[0], b"i"), (NAMES[1], b"", tarfile.DIRTYPE)),
        tar_of((NAMES[0], b"i"), (NAMES[1], b"d" * 3000))[:2000],
    ],
    ids=[
        "nothing",
        "no archive",
        "an empty archive",
        "one file",
        "another order",
        "one more file",
        "a path above",
        "an absolute path",
        "a symbolic link",
        "a hard link",
        "a directory",
        "a truncated file",
    ],
)
def test_anything_else_is_refused(blob, tmp_path):
    with pytest.raises(DataLossError, match="dense weights of a cut"):
        unpack(blob, tmp_path)
    assert not (tmp_path / NAMES[1]).exists()
