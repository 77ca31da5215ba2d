"""`platform pause`, `resume` and `rollback` of a trainer that publishes by itself."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from free_ports import free_port
from integration.serving.cut_servers import CACHE, paused
from integration.serving.marked_rows import MarkedModel, cut_of
from online_control import StateInMemory
from waiting import wait_until

from hotrow.cli.main import main
from hotrow.config.online import OnlineConfig
from hotrow.errors import UnavailableError
from hotrow.protos import online_pb2
from hotrow.store.cut_rollback import roll_back_to_cut
from hotrow.store.generations import Generations
from hotrow.store.leases import Lease, lock_exports
from hotrow.store.published import PublishedLog
from hotrow.trainer.online.admin.port import TrainerAdmin, read_admin_access

TOKEN = "t0-operator"


@pytest.fixture
def model(redis_server: Any, tmp_path: Path) -> Iterator[MarkedModel]:
    """A marked model with its rows in a Redis."""
    made = MarkedModel(tmp_path / "models", redis_server.url)
    yield made
    made.close()


class Publisher(StateInMemory):
    """A trainer that goes back as a real one does: by the lock that it holds.

    Attributes:
        lock: of the model; None: it publishes nothing yet.
    """

    def __init__(self, model: MarkedModel) -> None:
        super().__init__("m")
        self._model = model
        self.lock: Lease | None = None

    def rollback(self, to: str) -> str:
        """Publishes an earlier state of the store."""
        assert self.lock is not None
        store = self._model.store
        generation = Generations(store.records).get(self._model.generation.generation)
        outcome = roll_back_to_cut(
            store,
            generation,
            self.lock,
            int(to, 16),
            published=PublishedLog(None, generation.generation),
            exported_dense=lambda: self._model.dense(0),
            wait_seconds=0,
            report=lambda line: None,
        )
        assert outcome.cut is not None
        return f"{outcome.cut.version:016x}"


@pytest.fixture
def control(model: MarkedModel) -> Publisher:
    return Publisher(model)


@pytest.fixture
def run_dir(tmp_path: Path) -> Path:
    path = tmp_path / "run"
    path.mkdir()
    return path


@pytest.fixture
def trainer(control: Publisher, run_dir: Path) -> Iterator[TrainerAdmin]:
    """The admin port of a trainer; calls need a token."""
    tokens = run_dir / "tokens"
    tokens.write_text(f"\n{TOKEN}\n")
    config = OnlineConfig(source="file:events", admin="localhost:0", admin_token_file=str(tokens))
    access = read_admin_access(config)
    assert access is not None
    with TrainerAdmin(access, control, run_dir) as admin:
        yield admin


@pytest.fixture
def token(trainer: TrainerAdmin, run_dir: Path) -> list[str]:
    """The options with which a command may call the trainer."""
    return ["--token_file", str(run_dir / "tokens")]


def test_an_operator_pauses_and_resumes(
    control: Publisher, run_dir: Path, trainer: TrainerAdmin, token: list[str], capsys: Any
) -> None:
    assert main(["pause", str(run_dir), "--reason", "the store is moved", *token]) == 0
    assert capsys.readouterr().out == "shop-run is paused at step 600: the store is moved\n"
    assert control.state.state == online_pb2.TrainerStatus.PAUSED
    assert main(["resume", trainer.address, *token]) == 0
    assert capsys.readouterr().out == "shop-run goes on at step 600\n"
    assert main(["pause", trainer.address, *token]) == 0
    assert control.state.reason.startswith("by ")
    assert main(["resume", str(run_dir), "--force", *token]) == 0
    assert control.forced == [False, True]
    assert main(["resume", str(run_dir), *token]) == 1
    assert "the trainer is training; nothing to resume" in capsys.readouterr().err


def test_a_trainer_that_needs_a_token_says_so(
    control: Publisher, run_dir: Path, trainer: TrainerAdmin, tmp_path: Path, capsys: Any
) -> None:
    assert main(["pause", str(run_dir)]) == 1
    assert "give it with --token_file" in capsys.readouterr().err
    assert control.state.state == online_pb2.TrainerStatus.TRAINING
    (tmp_path / "empty").write_text("\n")
    assert main(["pause", str(run_dir), "--token_file", str(tmp_path / "empty")]) == 2
    assert main(["pause", str(run_dir), "--token_file", str(tmp_path / "none")]) == 1
    assert main(["pause", str(run_dir), "--cert_file", "a"]) == 2
    assert "give both" in capsys.readouterr().err


def test_the_trainer_rolls_back_and_servers_follow(
    model: MarkedModel,
    control: Publisher,
    trainer: TrainerAdmin,
    token: list[str],
    start_server: Any,
    tmp_path: Path,
    capsys: Any,
) -> None:
    server = start_server("m", model.path, *CACHE)
    server.wait_ready()
    for number in (1, 2):
        cut = model.write(number)
        model.wait_until_noted(cut)
        model.fold_taken(undo_cuts=2)
        if number == 1:
            first = f"{cut.version:016x}"
    base = model.path.parent
    report = tmp_path / "rollback.json"
    command = ["rollback", str(base), "--name", "m", "--to", first, "--json", str(report), *token]
    control.lock = lock_exports(model.store.records, "m", trainer="run", admin=trainer.address)
    with control.lock:
        assert main(command) == 0
        assert cut_of(server) == 1
        out = capsys.readouterr().out
        assert f"publishes nothing more until `platform resume {trainer.address}`" in out
        assert json.loads(report.read_text())["trainer"] == trainer.address
        with paused(server):
            second = ["--to", f"{model.generation.row_version:016x}", "--wait_seconds", "0.2"]
            assert main(["rollback", str(base), "--name", "m", *second, *token]) == 3, (
                capsys.readouterr().err
            )
        wait_until(lambda: cut_of(server) == 0)
        assert main([*command[:5], "f" * 16, *token]) == 1
        assert (
            f"the trainer at {trainer.address}: {'f' * 16} is no state" in capsys.readouterr().err
        )


def test_a_rollback_names_a_trainer_that_cannot_be_asked(model: MarkedModel, capsys: Any) -> None:
    model.write(1)
    to = f"{model.generation.row_version:016x}"
    command = ["rollback", str(model.path.parent), "--name", "m", "--to", to]
    with lock_exports(model.store.records, "m", trainer="runs/shop"):
        assert main(command) == 1
    error = capsys.readouterr().err
    assert "it is the trainer of runs/shop, which publishes by itself and has no admin" in error
    assert main([*command, "--wait_seconds", "0"]) == 0


def test_what_a_trainer_says_of_its_store_is_not_its_own_silence(
    control: Publisher,
    trainer: TrainerAdmin,
    token: list[str],
    capsys: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def pause(reason: str) -> None:
        raise UnavailableError("the store does not answer")

    monkeypatch.setattr(control, "pause", pause)
    assert main(["pause", trainer.address, *token]) == 1
    expected = f"the trainer at {trainer.address}: the store does not answer\n"
    assert capsys.readouterr().err == f"Error: {expected}"
    nowhere = f"localhost:{free_port()}"
    assert main(["pause", nowhere, *token]) == 1
    assert f"the trainer at {nowhere} does not answer: " in capsys.readouterr().err
