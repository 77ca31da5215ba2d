"""`platform status` of a trainer, its store and its servers, as far as they answer."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from free_ports import free_port
from integration.serving.cut_servers import CACHE, metrics, paused
from integration.serving.marked_rows import MarkedModel, ask, cut_of
from online_control import StateInMemory
from waiting import wait_until

from hotrow.admin.run_address import RunAddress
from hotrow.cli.main import main
from hotrow.cli.status_servers import ServerPages, page_url
from hotrow.config.online import OnlineConfig
from hotrow.protos import online_pb2
from hotrow.serving.monitoring.prometheus import DEFAULT_PATH
from hotrow.store.cuts import cuts_of
from hotrow.store.leases import lock_exports
from hotrow.store.process_identity import identity_of
from hotrow.trainer.online.admin.port import TrainerAdmin, read_admin_access

DOCS = Path(__file__).resolve().parents[3] / "docs" / "online_operating.md"


@pytest.fixture
def model(redis_server: Any, tmp_path: Path) -> Iterator[MarkedModel]:
    """A marked model with its rows in a Redis."""
    made = MarkedModel(tmp_path / "models", redis_server.url)
    yield made
    made.close()


@pytest.fixture
def control(model: MarkedModel) -> StateInMemory:
    control = StateInMemory("m")
    control.state.publishing.store = model.store.url
    return control


@pytest.fixture
def trainer(control: StateInMemory, tmp_path: Path) -> Iterator[TrainerAdmin]:
    access = read_admin_access(OnlineConfig(source="file:events", admin="localhost:0"))
    assert access is not None
    run_dir = tmp_path / "run"
    run_dir.mkdir()
    with TrainerAdmin(access, control, run_dir) as admin:
        yield admin


@pytest.fixture
def server(model: MarkedModel, start_server: Any, tmp_path: Path) -> Any:
    """A server with a page of metrics, which shows cut 1."""
    server = start_server("m", model.path, *CACHE, metrics(tmp_path))
    server.wait_ready()
    cut = model.write(1)
    model.wait_until_noted(cut)
    return server


def status(capsys: Any, *arguments: str) -> tuple[int, dict[str, Any]]:
    """Runs the command; returns exit code and JSON."""
    capsys.readouterr()
    code = main(["status", "--json", "--seconds", "0.2", *arguments])
    return code, json.loads(capsys.readouterr().out)


def problems(found: dict[str, Any]) -> dict[str, str]:
    """Returns the text of each part's only problem."""
    return {problem["part"]: problem["text"] for problem in found["problems"]}


def test_all_parts_are_shown(
    model: MarkedModel, server: Any, trainer: TrainerAdmin, tmp_path: Path, capsys: Any
) -> None:
    ask(server, np.arange(50, dtype=np.int64))
    code, found = status(capsys, str(tmp_path / "run"))
    assert (code, found["problems"]) == (0, [])
    assert (found["kind"], found["format"], found["exit_code"]) == ("status", 1, 0)

    assert found["trainer"]["state"] == "training"
    assert found["trainer"]["address"] == trainer.address
    assert found["trainer"]["stream"]["events"] == 1200
    assert found["trainer"]["progressive"][1]["window"]["auc"] == 0.71
    assert found["trainer"]["cut_age_seconds"] >= 1.5

    store = found["store"]
    assert store["url"] == model.store.url
    assert store["live"] == model.generation.generation
    (generation,) = store["generations"]
    (cut,) = generation["cuts"]
    assert (cut["step"], cut["folded"], cut["removed"]) == (1001, False, 1)
    assert cut["bytes"] > 0
    assert cut["age_seconds"] >= 0
    assert (generation["unfolded_cuts"], generation["unfolded_bytes"]) == (1, cut["bytes"])
    assert generation["bytes"] > 0
    (node,) = store["nodes"]
    assert node["used_bytes"] > 0

    (shown,) = found["servers"]
    assert (shown["cut"], shown["behind_cuts"]) == (cut["cut"], 0)
    assert shown["metrics"].endswith(f":{server.rest_port}{DEFAULT_PATH}")
    page = shown["page"]
    assert (page["cut"], page["step"], page["stale"]) == (cut["cut"], 1001, False)


def test_rates_are_those_between_two_looks(
    model: MarkedModel, server: Any, trainer: TrainerAdmin, capsys: Any
) -> None:
    address = page_url(f"127.0.0.1:{server.rest_port}")
    keys = np.arange(50, dtype=np.int64)
    ask(server, keys)
    pages = ServerPages("m")
    first = pages.read([address])[address]
    assert (first["requests"], first["over_seconds"]) == (1, None)
    for _ in range(3):
        ask(server, keys)
    second = pages.read([address])[address]
    assert (second["requests"], second["errors"]) == (3, 0)
    assert second["requests_per_second"] == pytest.approx(3 / second["over_seconds"])
    assert 0 < second["p99_seconds"] < 60
    assert second["hit_rate"] == 1.0
    third = pages.read([address])[address]
    assert (third["requests"], third["p99_seconds"], third["hit_rate"]) == (0, None, None)


def test_a_server_that_is_behind_is_a_problem(
    model: MarkedModel, start_server: Any, trainer: TrainerAdmin, capsys: Any
) -> None:
    server = start_server("m", model.path, *CACHE)  # without a page of metrics
    server.wait_ready()
    model.wait_until_noted(model.write(1))
    arguments = (trainer.address, "--behind_seconds", "0")
    with paused(server):
        model.write(2)
        code, found = status(capsys, *arguments)
        assert code == 3
        assert "1 cut behind" in problems(found)["servers"]
        assert found["servers"][0]["page"] is None
    wait_until(lambda: cut_of(server) == 2)
    model.wait_until_noted(model_cut(model))
    assert status(capsys, *arguments)[0] == 0


def test_a_server_that_hangs_does_not_answer(
    model: MarkedModel, server: Any, trainer: TrainerAdmin, capsys: Any
) -> None:
    with paused(server):
        code, found = status(capsys, trainer.address)
    assert code == 1
    assert "/metrics" in problems(found)["servers"]
    (shown,) = found["servers"]
    assert not shown["page"]["answers"]
    assert shown["cut"] == f"{model_cut(model).version:016x}"


def model_cut(model: MarkedModel) -> Any:
    """Returns the newest cut of a model."""
    return cuts_of(model.store.records, model.generation)[-1]


@pytest.mark.parametrize("state", ["paused", "gate closed", "fenced"])
def test_a_trainer_that_does_not_train_or_publish_is_a_problem(
    state: str, control: StateInMemory, trainer: TrainerAdmin, capsys: Any
) -> None:
    control.state.state = getattr(online_pb2.TrainerStatus, state.upper().replace(" ", "_"))
    control.state.reason = "canary: AUC fell by 0.2"
    code, found = status(capsys, trainer.address)
    assert code == 3
    assert problems(found) == {"trainer": f"it is {state}: canary: AUC fell by 0.2"}


def test_lag_and_failures_of_a_trainer_are_problems(
    control: StateInMemory, trainer: TrainerAdmin, capsys: Any
) -> None:
    control.state.stream.lag_seconds = 31.0
    control.state.publishing.failures = 4
    control.state.publishing.error = "the store is full"
    control.state.checkpoints.failures = 1
    control.state.checkpoints.error = "no space"
    code, found = status(capsys, trainer.address)
    assert code == 3
    texts = [problem["text"] for problem in found["problems"]]
    assert texts == [
        "it is 31 s behind its source; 30 s are allowed (--lag_seconds)",
        "4 cuts in a row failed, the last one by: the store is full",
        "1 checkpoint failed since the last one: no space",
    ]
    control.state.publishing.failures = control.state.checkpoints.failures = 0
    assert status(capsys, trainer.address, "--lag_seconds", "60")[0] == 0


def test_the_trainer_is_found_by_the_store(
    model: MarkedModel, trainer: TrainerAdmin, capsys: Any
) -> None:
    store = ("--store", model.store.url, "--model", "m")
    code, found = status(capsys, *store)
    assert (code, found["trainer"], found["store"]["exporter"]) == (0, None, None)
    with lock_exports(model.store.records, "m", trainer="run", admin=trainer.address):
        code, found = status(capsys, *store)
    assert (code, found["trainer"]["address"]) == (0, trainer.address)
    assert found["store"]["exporter"]["trainer"] == "run"


def test_parts_that_do_not_answer_say_why_and_the_others_are_shown(
    model: MarkedModel, control: StateInMemory, trainer: TrainerAdmin, capsys: Any
) -> None:
    nowhere = f"127.0.0.1:{free_port()}"
    control.state.publishing.store = f"redis://{nowhere}"
    code, found = status(capsys, trainer.address, "--server", nowhere)
    assert code == 1
    assert found["trainer"]["answers"]
    assert not found["store"]["answers"]
    assert nowhere in problems(found)["store"]
    assert f"http://{nowhere}{DEFAULT_PATH} does not answer" in problems(found)["servers"]

    code, found = status(capsys, nowhere, "--store", model.store.url, "--model", "m")
    assert code == 1
    assert found["store"]["answers"]
    assert problems(found)["trainer"].startswith(f"the trainer at {nowhere} does not answer")
    assert found["trainer"] == {"answers": False, "why": problems(found)["trainer"]}


def test_a_killed_trainer_is_known_by_its_process(tmp_path: Path, capsys: Any) -> None:
    child = subprocess.Popen(
        [sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True
    )
    RunAddress("localhost:1", False, False, identity_of(child.pid)).write(tmp_path)
    child.kill()
    child.wait()
    code, found = status(capsys, str(tmp_path))
    assert code == 1
    assert "was killed" in problems(found)["trainer"]


def test_what_is_no_place_is_refused(tmp_path: Path, capsys: Any) -> None:
    assert main(["status", "nowhere"]) == 2
    assert "neither the directory of a run nor HOST:PORT" in capsys.readouterr().err
    assert main(["status"]) == 2
    assert "Give RUN_DIR or HOST:PORT, or --store and --model" in capsys.readouterr().err
    assert main(["status", "--store", "redis://a"]) == 2


def test_the_terminal_view_has_all_parts(
    model: MarkedModel,
    server: Any,
    control: StateInMemory,
    trainer: TrainerAdmin,
    capsys: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("COLUMNS", "160")
    arguments = ["status", "--seconds", "0.2", trainer.address]
    assert main(arguments) == 0
    shown = capsys.readouterr().out
    cut = f"{model_cut(model).version:016x}"
    for text in ("all is well", "1,200 trained", "online, last window", "0.78", "210 rows"):
        assert text in shown
    assert shown.count(cut) == 2  # in the store, and on the server
    control.pause("the store is moved")
    assert main(arguments) == 3
    assert "paused: the store is moved" in capsys.readouterr().out


@contextlib.contextmanager
def killed(child: subprocess.Popen[Any]) -> Iterator[None]:
    """Ends a process that is still there at the end of the block."""
    try:
        yield
    finally:
        child.kill()
        child.wait()


@pytest.mark.parametrize("flags", [[], ["--json"]], ids=["text", "json"])
def test_watching_goes_on_until_ctrl_c(flags: list[str], trainer: TrainerAdmin) -> None:
    command = [sys.executable, "-m", "hotrow.cli.main", "status", trainer.address, "--watch"]
    child = subprocess.Popen(
        [*command, "--seconds", "0.1", *flags],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    )
    assert child.stdout is not None
    seen = 0
    with killed(child):
        while seen < 3:
            line = child.stdout.readline()
            assert line
            seen += "1200" in line or "1,200" in line
        child.send_signal(signal.SIGINT)
        rest, errors = child.communicate(timeout=60)
    assert (child.returncode, errors) == (0, "")
    if flags:
        assert all(json.loads(each)["kind"] == "status" for each in [line, *rest.splitlines()])


def test_ctrl_c_on_a_terminal_ends_watching_and_leaves_the_screen(trainer: TrainerAdmin) -> None:
    watch = f"{sys.executable} -m hotrow.cli.main status {trainer.address} --watch --seconds 0.1"
    child = subprocess.Popen(
        # `exec`: Ctrl-C would end a shell between `script` and the command.
        ["script", "--quiet", "--return", "--command", f"exec {watch}", "/dev/null"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "TERM": "xterm", "COLUMNS": "120"},
    )
    assert child.stdin is not None
    assert child.stdout is not None
    seen = b""
    with killed(child):
        while seen.count(b"1,200 trained") < 2:
            piece = os.read(child.stdout.fileno(), 1 << 16)
            assert piece, seen.decode()
            seen += piece
        child.stdin.write(b"\x03")
        child.stdin.flush()
        rest, _ = child.communicate(timeout=60)
    assert child.returncode == 0, rest.decode()
    assert b"\x1b[?1049h" in seen  # the terminal's other screen, and back
    assert b"\x1b[?1049l" in rest


def documented(field: str) -> set[str]:
    """Returns the names that the page of docs gives for a field of the JSON."""
    (text,) = re.findall(rf"^\| {re.escape(f'`{field}`')} \| (.*) \|$", DOCS.read_text(), re.M)
    return set(re.findall(r"`([a-z0-9_]+)`", text))


def test_the_docs_have_the_fields_of_the_json(
    model: MarkedModel, server: Any, trainer: TrainerAdmin, capsys: Any
) -> None:
    with lock_exports(model.store.records, "m", trainer="run", admin=trainer.address):
        _, found = status(capsys, trainer.address)
    lines = re.findall(r"^\| ((?:`\w+`(?:, )?)+) \|", DOCS.read_text(), re.M)
    assert set(found) <= {name for line in lines for name in re.findall(r"`(\w+)`", line)}
    fields = {field.name for field in online_pb2.TrainerStatus.DESCRIPTOR.fields}
    assert set(found["trainer"]) == documented("trainer") | fields
    store = found["store"]
    assert set(store) == documented("store")
    assert set(store["exporter"]) == documented("store.exporter")
    assert set(store["nodes"][0]) == documented("store.nodes")
    (generation,) = store["generations"]
    assert set(generation) == documented("store.generations")
    assert set(generation["cuts"][0]) == documented("store.generations.cuts")
    assert set(generation["readers"][0]) == documented("store.generations.readers")
    (shown,) = found["servers"]
    assert set(shown) == documented("servers")
    assert set(shown["page"]) == documented("servers.page")
    _, late = status(capsys, "127.0.0.1:1")
    assert set(late["problems"][0]) == documented("problems")


def test_a_trainer_that_publishes_nothing_is_shown(
    control: StateInMemory, trainer: TrainerAdmin, capsys: Any
) -> None:
    control.state.model = ""
    control.state.ClearField("publishing")
    code, found = status(capsys, trainer.address)
    assert (code, found["store"], found["servers"]) == (0, None, [])
    assert found["trainer"]["publishing"]["cuts"] == 0
    assert found["trainer"]["cut_age_seconds"] is None
    assert main(["status", "--seconds", "0.2", trainer.address]) == 0
    assert "nothing: online.models is not set" in capsys.readouterr().out
