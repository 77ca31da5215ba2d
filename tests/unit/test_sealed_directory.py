"""Directories that appear whole or not at all."""

from __future__ import annotations

import errno
import json

import pytest

from hotrow.errors import (
    AlreadyExistsError,
    DataLossError,
    HotrowError,
    ResourceExhaustedError,
)
from hotrow.hashed_file import HashedFile
from hotrow.sealed_directory import (
    MANIFEST,
    discard,
    read_manifest,
    read_sealed,
    remove_leftovers,
    seal_of,
    sealing,
)


@pytest.fixture
def sealed(tmp_path):
    final = tmp_path / "final"
    with sealing(final, {"number": 7}) as directory:
        (directory / "sub").mkdir()
        (directory / "a.txt").write_text("some text")
        (directory / "sub" / "b.bin").write_bytes(b"\x00\x01")
    return final


def test_what_was_written_is_there_with_its_facts(sealed):
    manifest = read_sealed(sealed)
    assert manifest["number"] == 7
    assert set(manifest["files"]) == {"a.txt", "sub/b.bin"}
    assert [path.name for path in sealed.parent.iterdir()] == ["final"]


def test_nothing_appears_when_the_writer_fails(tmp_path):
    def fail():
        with sealing(tmp_path / "final", {}) as directory:
            (directory / "a.txt").write_text("x")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert list(tmp_path.iterdir()) == []


def test_a_disk_that_refuses_is_one_line_and_leaves_nothing(tmp_path):
    with (
        pytest.raises(HotrowError, match=r"cannot write .*final: No space left"),
        sealing(tmp_path / "final", {}),
    ):
        raise OSError(28, "No space left on device")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EFBIG])
def test_a_disk_without_room_differs_from_one_that_refuses(tmp_path, number):
    with pytest.raises(ResourceExhaustedError), sealing(tmp_path / "final", {}):
        raise OSError(number, "full")
    with pytest.raises(HotrowError) as refused, sealing(tmp_path / "final", {}):
        raise OSError(errno.EIO, "Input/output error")
    assert not isinstance(refused.value, ResourceExhaustedError)


def test_files_that_were_hashed_while_written_are_not_read_again(tmp_path):
    hashed = {}
    with sealing(tmp_path / "final", {}, hashed) as directory:
        (directory / "sub").mkdir()
        with HashedFile(directory / "sub" / "h") as file:
            file.write(b"abc")
            file.write(bytes(9 << 20))
        hashed["sub/h"] = file.facts
        (directory / "sub" / "h").write_bytes(b"other")  # shows whether it is read
    with pytest.raises(DataLossError, match="sub/h is damaged"):
        read_sealed(tmp_path / "final")
    (tmp_path / "final" / "sub" / "h").write_bytes(b"abc" + bytes(9 << 20))
    assert read_sealed(tmp_path / "final")["files"]["sub/h"]["bytes"] == 3 + (9 << 20)


def test_a_directory_is_replaced_only_when_asked_and_only_in_the_end(sealed):
    with pytest.raises(ZeroDivisionError), sealing(sealed, {"number": 8}, replace=True):
        raise ZeroDivisionError
    assert read_sealed(sealed)["number"] == 7
    with sealing(sealed, {"number": 8}, replace=True):
        assert read_sealed(sealed)["number"] == 7
    assert read_sealed(sealed) == {"number": 8, "files": {}}
    assert list(sealed.parent.iterdir()) == [sealed]


def test_what_is_discarded_is_gone(sealed):
    discard(sealed)
    assert list(sealed.parent.iterdir()) == []


def test_the_seal_is_that_of_the_manifest(sealed):
    assert json.loads((sealed / MANIFEST).read_text())["seal"] == seal_of(read_manifest(sealed))


def test_a_manifest_that_lost_a_byte_is_damaged(sealed):
    whole = (sealed / MANIFEST).read_bytes()
    (sealed / MANIFEST).write_bytes(whole[:-1])
    with pytest.raises(DataLossError, match="is damaged"):
        read_sealed(sealed)


def test_an_existing_directory_is_not_replaced(sealed):
    with pytest.raises(AlreadyExistsError, match="exists already"), sealing(sealed, {}):
        pass
    assert read_sealed(sealed)["number"] == 7


def test_leftovers_of_a_crash_are_removed_and_nothing_else(sealed):
    leftover = sealed.with_name(".unfinished-other-1")
    leftover.mkdir()
    (leftover / "x").write_text("x")
    remove_leftovers(sealed.parent)
    assert [path.name for path in sealed.parent.iterdir()] == ["final"]


def flip_a_bit(path):
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


@pytest.mark.parametrize("name", ["a.txt", "sub/b.bin", MANIFEST])
@pytest.mark.parametrize(
    "damage",
    [flip_a_bit, lambda path: path.unlink(), lambda path: path.write_bytes(b"")],
    ids=["bit flipped", "removed", "emptied"],
)
def test_every_damage_to_every_file_is_found_and_named(sealed, name, damage):
    damage(sealed / name)
    with pytest.raises(DataLossError, match=name):
        read_sealed(sealed)


@pytest.mark.parametrize("content", ["[]", "{}", '{"files": 3, "seal": ""}', '"x"'])
def test_a_manifest_of_another_shape_is_damaged(sealed, content):
    (sealed / MANIFEST).write_text(content)
    with pytest.raises(DataLossError, match="is damaged"):
        read_sealed(sealed)


def test_a_fact_that_was_changed_is_found(sealed):
    manifest = json.loads((sealed / MANIFEST).read_text())
    manifest["number"] = 8
    (sealed / MANIFEST).write_text(json.dumps(manifest))
    with pytest.raises(DataLossError, match="checksum differs"):
        read_sealed(sealed)
