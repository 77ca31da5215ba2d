"""Versions of a folder, and those that a rollback set aside."""

from __future__ import annotations

from pathlib import Path

from hotrow.version_folder import hide, next_version, set_aside_in, show, versions_in


def test_versions_set_aside_keep_their_numbers(tmp_path: Path) -> None:
    folder = tmp_path / "m"
    assert versions_in(folder) == {}
    assert next_version(folder) == 1
    for name in ("1", "00000012", "3", "x", ".unfinished-9-1", "2.rolled", "tmp.rolled_back"):
        (folder / name).mkdir(parents=True)
    (folder / "99").write_text("no folder")
    assert list(versions_in(folder)) == [1, 3, 12]
    hidden = hide(folder / "00000012")
    assert hidden == folder / "00000012.rolled_back"
    assert list(versions_in(folder)) == [1, 3]
    assert set_aside_in(folder) == {12: hidden}
    assert next_version(folder) == 13
    assert show(hidden) == folder / "00000012"
    assert list(versions_in(folder)) == [1, 3, 12]
