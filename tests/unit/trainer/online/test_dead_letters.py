"""Dead letters are JSON lines in files of a bounded size."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from event_runs import letters
from waiting import wait_until

from hotrow.errors import UnavailableError
from hotrow.trainer.online import dead_letters
from hotrow.trainer.online.dead_letters import DeadLetters


def test_a_letter_has_reason_place_and_event(tmp_path: Path) -> None:
    path = tmp_path / "dead.jsonl"
    written = DeadLetters(path, 1 << 20, print)
    written.add("bad", "is no é", {"file": "a", "byte": 3}, "é\n".encode())
    written.add("bad", "is not UTF-8", 5, b"\xff\x00")
    written.add("late", "is late", None, {"user": "a", "price": float("inf")})
    written.add("bad", "line", 7, None)
    written.close()
    assert letters(path) == [
        {"kind": "bad", "reason": "is no é", "place": {"file": "a", "byte": 3}, "event": "é\n"},
        {"kind": "bad", "reason": "is not UTF-8", "place": 5, "base64": "/wA="},
        {
            "kind": "late",
            "reason": "is late",
            "place": None,
            "event": {"user": "a", "price": float("inf")},
        },
        {"kind": "bad", "reason": "line", "place": 7},
    ]
    assert (written.count("bad"), written.count("late"), written.count("label")) == (3, 1, 0)


def test_files_are_rotated_and_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dead_letters, "FILE_BYTES", 400)
    path = tmp_path / "dead.jsonl"
    written = DeadLetters(path, 2000, print)
    for number in range(100):
        written.add("bad", "x" * 50, number, b"y")
    written.close()
    files = [path, *sorted(tmp_path.glob("dead.jsonl.*"))]
    assert len(files) > 3
    assert max(file.stat().st_size for file in files) <= 400
    assert 1800 < sum(file.stat().st_size for file in files) <= 2000
    places = sorted(letter["place"] for file in files for letter in letters(file))
    assert places == list(range(len(places)))
    assert written.unwritten == 100 - len(places)
    assert written.count("bad") == 100

    again = DeadLetters(path, 2000, print)
    again.add("bad", "x" * 50, 100, b"y")
    assert again.unwritten == 1
    files[1].unlink()  # who removes files makes room
    again.add("bad", "x" * 50, 101, b"y")
    assert again.unwritten == 1
    again.close()
    assert 101 in [letter["place"] for letter in letters(path)]


def test_without_bytes_events_are_only_counted(tmp_path: Path) -> None:
    written = DeadLetters(tmp_path / "dead.jsonl", 0, print)
    written.add("bad", "x", 1, b"y")
    written.close()
    assert list(tmp_path.iterdir()) == []
    assert written.count("bad") == written.unwritten == 1


def test_a_file_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    written = DeadLetters(tmp_path / "none" / "dead.jsonl", 100, print)
    with pytest.raises(UnavailableError, match=r"none/dead.jsonl cannot be written: No such file"):
        written.add("bad", "x", 1, b"y")


def test_a_wait_for_room_on_a_full_disk_can_be_given_up(tmp_path: Path) -> None:
    path = tmp_path / "dead.jsonl"
    path.symlink_to("/dev/full")
    reports: list[str] = []
    written = DeadLetters(path, 100, reports.append)
    errors: list[BaseException] = []

    def add() -> None:
        try:
            written.add("bad", "x", 1, b"y")
        except UnavailableError as err:
            errors.append(err)

    waits = threading.Thread(target=add, daemon=True)
    waits.start()
    try:
        wait_until(lambda: bool(reports))
        assert waits.is_alive()
    finally:
        written.give_up()
        waits.join(30)
        assert not waits.is_alive()
        written.close()
    assert len(reports) == 1
    assert f"no events while {path} cannot be written: No space left on device" in reports[0]
    assert "cannot be written: No space left on device" in str(errors[0])
