"""Directories that appear whole or not at all."""

from __future__ import annotations

import json

import pytest

from hotrow.errors import AlreadyExistsError, DataLossError, HotrowError
from hotrow.sealed_directory import MANIFEST, read_sealed, remove_leftovers, sealing


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
