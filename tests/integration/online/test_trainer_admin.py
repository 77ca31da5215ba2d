"""The admin port of a trainer: calls, the page of metrics, tokens, TLS and its address."""

from __future__ import annotations

import http.client
import json
import os
import ssl
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from certificates import Certificates
from online_control import EARLIER, RESTORED, StateInMemory

from hotrow.admin.run_address import read_run_address
from hotrow.config.online import OnlineConfig
from hotrow.errors import HotrowError, NotFoundError, UnavailableError
from hotrow.protos import online_pb2, online_pb2_grpc, ssl_config_pb2
from hotrow.store.process_identity import identity_of
from hotrow.trainer.online.admin.port import TrainerAdmin, read_admin_access

TOKEN = "t0-operator"


def start(run_dir: Path, control: StateInMemory, **options: Any) -> TrainerAdmin:
    """Starts the port of a trainer on a free port of localhost."""
    config = OnlineConfig(source="file:events", **{"admin": "localhost:0", **options})
    access = read_admin_access(config)
    assert access is not None
    return TrainerAdmin(access, control, run_dir)


@pytest.fixture
def control() -> StateInMemory:
    return StateInMemory()


@pytest.fixture
def admin(tmp_path: Path, control: StateInMemory) -> Iterator[TrainerAdmin]:
    with start(tmp_path, control) as admin:
        yield admin


@pytest.fixture
def stub(admin: TrainerAdmin) -> Iterator[Any]:
    with grpc.insecure_channel(admin.address) as channel:
        yield online_pb2_grpc.OnlineTrainerStub(channel)


def refused(call: Any, *arguments: Any, **options: Any) -> tuple[str, str]:
    """Returns code and text of the error that a call ends with."""
    with pytest.raises(grpc.RpcError) as error:
        call(*arguments, **options)
    return error.value.code().name, error.value.details()


def test_an_operator_pauses_and_resumes(stub: Any, control: StateInMemory) -> None:
    seen = stub.Status(online_pb2.StatusRequest())
    seen.time = control.state.time
    assert seen == control.state
    paused = stub.Pause(online_pb2.PauseRequest(reason="store upgrade"))
    assert (paused.state, paused.reason) == (online_pb2.TrainerStatus.PAUSED, "store upgrade")
    resumed = stub.Resume(online_pb2.ResumeRequest(force=True))
    assert resumed.state == online_pb2.TrainerStatus.TRAINING
    assert control.forced == [True]


def test_an_operator_rolls_back(stub: Any, control: StateInMemory) -> None:
    reply = stub.Rollback(online_pb2.RollbackRequest(to=EARLIER))
    assert reply.cut == RESTORED
    assert stub.Status(online_pb2.StatusRequest()).publishing.gate.closed


def test_errors_of_the_trainer_have_their_status_and_text(stub: Any) -> None:
    code, text = refused(stub.Resume, online_pb2.ResumeRequest())
    assert (code, text) == ("FAILED_PRECONDITION", "the trainer is training; nothing to resume")
    code, text = refused(stub.Rollback, online_pb2.RollbackRequest(to="f" * 16))
    assert code == "NOT_FOUND"
    assert EARLIER in text
    code, text = refused(stub.Rollback, online_pb2.RollbackRequest(to="41"))
    assert code == "INVALID_ARGUMENT"
    assert "16 hexadecimal digits" in text


def test_an_unforeseen_error_ends_one_call_only(
    stub: Any, control: StateInMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(control, "pause", lambda reason: 1 // 0)
        code, text = refused(stub.Pause, online_pb2.PauseRequest())
    assert code == "INTERNAL"
    assert text.startswith("ZeroDivisionError")
    assert stub.Status(online_pb2.StatusRequest()).step == 600


def test_the_same_port_has_the_page_of_metrics(admin: TrainerAdmin) -> None:
    with urllib.request.urlopen(f"http://{admin.address}/metrics", timeout=30) as reply:
        assert "hotrow_online_events_total 1200.0\n" in reply.read().decode()
    with pytest.raises(urllib.error.HTTPError, match="404"):
        urllib.request.urlopen(f"http://{admin.address}/", timeout=30)


def test_the_run_says_where_its_trainer_answers(tmp_path: Path, control: StateInMemory) -> None:
    with start(tmp_path, control) as admin:
        found = read_run_address(tmp_path)
        assert found.address == admin.address
        assert (found.tls, found.token) == (False, False)
        assert found.process == identity_of(os.getpid())
    with pytest.raises(NotFoundError, match=r"no trainer with online\.admin runs"):
        read_run_address(tmp_path)


@pytest.mark.parametrize("text", ["{", "[]", '{"address": "a:1"}'])
def test_a_damaged_address_is_an_error(tmp_path: Path, text: str) -> None:
    (tmp_path / "admin.json").write_text(text)
    with pytest.raises(HotrowError, match=r"admin\.json is damaged"):
        read_run_address(tmp_path)


def test_a_taken_port_is_an_error_that_names_the_option(
    admin: TrainerAdmin, tmp_path: Path, control: StateInMemory
) -> None:
    with pytest.raises(UnavailableError, match=r"online\.admin .* cannot be used"):
        start(tmp_path, control, admin=admin.address)
    assert read_run_address(tmp_path).address == admin.address


def test_every_call_and_the_page_need_a_token(tmp_path: Path, control: StateInMemory) -> None:
    tokens = tmp_path / "tokens"
    tokens.write_text(f"{TOKEN}\n")
    with (
        start(tmp_path, control, admin_token_file=str(tokens)) as admin,
        grpc.insecure_channel(admin.address) as channel,
    ):
        assert read_run_address(tmp_path).token
        stub = online_pb2_grpc.OnlineTrainerStub(channel)
        request = online_pb2.PauseRequest(reason="x")
        for wrong in ([], [("authorization", f"Bearer {TOKEN}x")]):
            code, text = refused(stub.Pause, request, metadata=wrong)
            assert code == "UNAUTHENTICATED"
            assert "online.admin_token_file" in text
        assert control.state.state == online_pb2.TrainerStatus.TRAINING
        stub.Pause(request, metadata=[("authorization", f"Bearer {TOKEN}")])
        assert control.state.state == online_pb2.TrainerStatus.PAUSED
        page = urllib.request.Request(f"http://{admin.address}/metrics")
        with pytest.raises(urllib.error.HTTPError, match="401"):
            urllib.request.urlopen(page, timeout=30)
        page.add_header("Authorization", f"Bearer {TOKEN}")
        with urllib.request.urlopen(page, timeout=30) as reply:
            assert b"hotrow_online_step" in reply.read()


def test_calls_and_the_page_are_encrypted(tmp_path: Path, control: StateInMemory) -> None:
    certificates = Certificates(tmp_path)
    config = ssl_config_pb2.SSLConfig(
        server_key=certificates.text("server.key"), server_cert=certificates.text("server.cert")
    )
    (tmp_path / "ssl").write_text(str(config))
    with start(tmp_path, control, admin_ssl_config_file=str(tmp_path / "ssl")) as admin:
        assert read_run_address(tmp_path).tls
        credentials = grpc.ssl_channel_credentials((tmp_path / "ca.cert").read_bytes())
        with grpc.secure_channel(admin.address, credentials) as channel:
            stub = online_pb2_grpc.OnlineTrainerStub(channel)
            assert stub.Status(online_pb2.StatusRequest()).step == 600
        trusted = ssl.create_default_context(cafile=tmp_path / "ca.cert")
        host, _, port = admin.address.rpartition(":")
        connection = http.client.HTTPSConnection(host, int(port), timeout=30, context=trusted)
        connection.request("GET", "/metrics")
        assert connection.getresponse().status == 200
        connection.close()


def test_the_file_with_the_address_is_whole(tmp_path: Path, control: StateInMemory) -> None:
    with start(tmp_path, control):
        content = json.loads((tmp_path / "admin.json").read_text())
    assert sorted(content) == ["address", "process", "tls", "token"]
