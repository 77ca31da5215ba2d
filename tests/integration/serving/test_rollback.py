"""Rollbacks under load: every answer is of one state, and none fails."""

from __future__ import annotations

import json
import shutil
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from integration.serving.cut_servers import CACHE, paused
from integration.serving.marked_rows import MarkedModel, cut_of, marked_load
from waiting import wait_until

from hotrow.cli.main import main
from hotrow.store.generations import Generations

MOST_SECONDS = 5.0


@pytest.fixture
def model(request: Any, tmp_path: Path) -> Iterator[MarkedModel]:
    """A marked model with its rows in a Redis, or where the test says."""
    place = getattr(request, "param", "redis_server")
    url = f"file://{tmp_path}/store" if place == "lmdb" else request.getfixturevalue(place).url
    made = MarkedModel(tmp_path / "models", url)
    yield made
    made.close()


each_store = pytest.mark.parametrize(
    "model",
    [
        "redis_server",
        pytest.param("redis_cluster", marks=pytest.mark.slow),
        pytest.param("lmdb", marks=pytest.mark.slow),
    ],
    indirect=True,
)


def roll_back(base: Path, to: Any, *flags: str, name: str = "m") -> dict[str, Any]:
    """Runs the command; returns its JSON."""
    report = base / "rollback.json"
    command = ["rollback", str(base), "--name", name, "--to", str(to), "--json", str(report)]
    assert main([*command, *flags]) == 0
    found: dict[str, Any] = json.loads(report.read_text())
    return found


def versions(place: Any, capsys: Any) -> list[dict[str, Any]]:
    """Returns what `platform versions` says of the only model."""
    capsys.readouterr()
    assert main(["versions", str(place), "--json", "-"]) == 0
    (found,) = json.loads(capsys.readouterr().out)["models"]
    listed: list[dict[str, Any]] = found["versions"]
    return listed


@each_store
def test_servers_swap_versions_back_and_forth_under_load(
    model: MarkedModel, start_server: Any, capsys: Any
) -> None:
    base = model.path.parent
    servers = [start_server("m", model.path, *CACHE) for _ in range(2)]
    for server in servers:
        server.wait_ready()
    model.export(100)
    for server in servers:
        wait_until(lambda server=server: cut_of(server) == 100)
    with (
        marked_load(servers[0], forward=False) as load,
        marked_load(servers[1], forward=False) as other,
    ):
        for to, cut in [(1, 0), (2, 100), (1, 0)]:
            done = roll_back(base, to)
            assert done["waiting_for"] == []
            # Whoever left the newer version answers by the older one; forward, none has to leave.
            assert (done["seconds"] is None) == (to == 2)
            for server in servers:
                wait_until(lambda server=server, cut=cut: cut_of(server) == cut)
    assert load.failures() == other.failures() == []
    assert load.cuts() == other.cuts() == {0, 100}
    first, second = versions(model.path, capsys)
    assert (first["newest"], first["live"], len(first["readers"])) == (True, True, 2)
    assert (second["set_aside"], second["live"], second["readers"]) == (True, False, [])
    assert second["can_go_back"]
    # Its number is not used again, and the next export keeps the version that is live now.
    assert model.export(101).name == "3"
    for server in servers:
        wait_until(lambda server=server: cut_of(server) == 101)


def test_servers_that_are_late_are_named_and_follow(
    model: MarkedModel, start_server: Any, capsys: Any
) -> None:
    base = model.path.parent
    server = start_server("m", model.path, *CACHE)
    server.wait_ready()
    cut = model.write(1)
    model.wait_until_noted(cut)
    model.fold_taken(undo_cuts=1)
    command = ["rollback", str(base), "--name", "m", "--wait_seconds", "0.3", "--to"]
    with paused(server):
        assert main([*command, f"{model.generation.row_version:016x}"]) == 3
        assert "Not all servers have gone back within 0.3 s: " in capsys.readouterr().err
    wait_until(lambda: cut_of(server) == 0)
    model.export(100)
    wait_until(lambda: cut_of(server) == 100)
    with paused(server):
        assert main([*command, "1"]) == 3
        assert "Not all servers have gone back within 0.3 s: " in capsys.readouterr().err
    wait_until(lambda: cut_of(server) == 0)


def test_what_cannot_be_gone_back_to_changes_nothing(
    model: MarkedModel, redis_server: Any, capsys: Any
) -> None:
    base = model.path.parent
    for cut in (1, 2):
        model.export(cut)
    before = sorted(path.name for path in model.path.iterdir())
    command = ["rollback", str(base), "--name", "m", "--to"]
    assert main([*command, "1"]) == 1
    assert "the rows of" in (said := capsys.readouterr().err)
    assert "were deleted from redis://" in said
    assert main([*command, "7"]) == 2
    assert "neither a version of" in capsys.readouterr().err
    assert main([*command, "00000000000000ff"]) == 1
    assert "is no state of generation" in capsys.readouterr().err
    assert main(["rollback", str(base), "--name", "n", "--to", "1"]) == 1
    assert "has no versions" in capsys.readouterr().err
    assert main([*command, "3"]) == 0
    assert "version 3 is the newest one already" in capsys.readouterr().out
    assert sorted(path.name for path in model.path.iterdir()) == before
    first, second, third = versions(model.path, capsys)
    assert (first["can_go_back"], first["problem"]) == (
        False,
        "its rows were deleted from the store",
    )
    assert (second["can_go_back"], third["can_go_back"], third["newest"]) == (True, False, True)
    stored = versions(redis_server.url, capsys)
    assert [(v["version"], v["can_go_back"], v["live"]) for v in stored] == [
        (2, True, False),
        (3, False, True),
    ]
    assert all(v["store_bytes"] > 360 * 32 for v in stored)
    assert main(["versions", str(base)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == f"model m in {model.path}"
    assert " ".join(lines[2].split()) == "version step state go back readers rows on disk in store"


def test_versions_without_hotrows_rows_are_swapped_as_well(
    two: Path, three: Path, start_server: Any, tmp_path: Path
) -> None:
    shutil.copytree(two, tmp_path / "half" / "00000123")
    shutil.copytree(three, tmp_path / "half" / "124")
    server = start_server("half", tmp_path / "half")
    server.wait_ready()

    def answer() -> float:
        return json.loads(server.rest_predict({"instances": [2.0]})[1])["predictions"][0]  # type: ignore[no-any-return]

    ended, seen, failed = threading.Event(), set(), []

    def ask() -> None:
        while not ended.is_set():
            try:
                seen.add(answer())
            except Exception as err:
                failed.append(err)

    thread = threading.Thread(target=ask, daemon=True)
    thread.start()
    wait_until(lambda: answer() == 4.0)
    done = roll_back(tmp_path, 123, name="half")
    assert (done["set_aside"], done["seconds"]) == ([124], None)
    wait_until(lambda: answer() == 3.0)
    roll_back(tmp_path, 124, name="half")
    wait_until(lambda: answer() == 4.0)
    ended.set()
    thread.join()
    assert failed == []
    assert seen == {3.0, 4.0}


@each_store
def test_cuts_are_undone_under_load(model: MarkedModel, start_server: Any, capsys: Any) -> None:
    base = model.path.parent
    servers = [start_server("m", model.path, *CACHE) for _ in range(2)]
    for server in servers:
        server.wait_ready()
    names = {0: f"{model.generation.row_version:016x}"}
    with (
        marked_load(servers[0], forward=False) as load,
        marked_load(servers[1], forward=False) as other,
    ):
        for number in (1, 2, 3):
            cut = model.write(number)
            names[number] = f"{cut.version:016x}"
            model.wait_until_noted(cut, servers=2)
            model.fold_taken(undo_cuts=3)
        for turn, number in enumerate((0, 3, 2)):
            done = roll_back(base, names[number])
            assert (done["waiting_for"], done["held_by"]) == ([], [])
            assert [cut_of(server) for server in servers] == [number] * 2
            (version,) = versions(model.path, capsys)
            assert version["cuts"][0]["cut"] == done["cut"]
            kept = [cut["can_go_back"] for cut in version["cuts"]]
            assert kept == [False, *[True] * (4 + turn)]
            assert all(cut["bytes"] > 0 for cut in version["cuts"][1:])
    assert load.failures() == other.failures() == []
    assert load.cuts() | other.cuts() == {0, 1, 2, 3}
    assert Generations(model.store.records).model("m").live == model.generation.generation


def test_a_cut_that_servers_refuse_is_undone(model: MarkedModel, start_server: Any) -> None:
    server = start_server("m", model.path, *CACHE)
    server.wait_ready()
    good = model.write(1)
    model.wait_until_noted(good)
    model.fold_taken(undo_cuts=1)
    bad = model.write(2, spoiled="row")
    server.wait_for_log(f"cut {bad.version:016x} is not taken")
    with marked_load(server) as load:
        roll_back(model.path.parent, f"{good.version:016x}")
        assert cut_of(server) == 1
        later = start_server("m", model.path, *CACHE)
        later.wait_ready()
        assert cut_of(later) == 1
    assert load.failures() == []
    assert load.cuts() == {1}


@pytest.mark.slow
def test_a_hundred_rollbacks_fail_no_request_and_mix_none(
    model: MarkedModel, start_server: Any, capsys: Any
) -> None:
    base = model.path.parent
    server = start_server("m", model.path, *CACHE)
    server.wait_ready()
    names = {0: f"{model.generation.row_version:016x}"}
    cut = model.write(1)
    names[1] = f"{cut.version:016x}"
    model.wait_until_noted(cut)
    model.fold_taken(undo_cuts=2)
    seconds: dict[str, list[float]] = {"version": [], "cut": []}
    with marked_load(server, forward=False) as load:
        for turn in range(50):  # back to the rows as exported, and to the cut again
            began = time.monotonic()
            done = roll_back(base, names[turn % 2])
            names[turn % 2] = done["cut"]
            assert cut_of(server) == turn % 2
            seconds["cut"].append(time.monotonic() - began)
        model.export(100)
        wait_until(lambda: cut_of(server) == 100)
        for turn in range(50):
            began = time.monotonic()
            roll_back(base, 1 + turn % 2)
            wanted = 100 if turn % 2 else 1
            wait_until(lambda wanted=wanted: cut_of(server) == wanted)
            seconds["version"].append(time.monotonic() - began)
    assert load.failures() == []
    assert load.cuts() == {0, 1, 100}
    answers = sum(map(len, load.seen))
    with capsys.disabled():
        for kind, taken in seconds.items():
            median, most = sorted(taken)[len(taken) // 2], max(taken)
            print(f"\n{len(taken)} rollbacks to a {kind}: median {median:.2f} s, most {most:.2f} s")
        print(f"{answers} answers, none failed, none mixed")
    assert max(map(max, seconds.values())) < MOST_SECONDS
