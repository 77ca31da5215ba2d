"""`platform status` and the commands of a trainer over TLS, with tokens and certificates."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from certificates import Certificates
from free_ports import free_port
from integration.serving.cut_servers import CACHE, metrics
from integration.serving.marked_rows import MarkedModel
from online_control import StateInMemory

from hotrow.cli.main import main
from hotrow.config.online import OnlineConfig
from hotrow.protos import online_pb2, ssl_config_pb2
from hotrow.trainer.online.admin.port import TrainerAdmin, read_admin_access

TOKEN = "t0-operator"
OF_SERVER = "q9d3-operator"


class Secured:
    """A trainer whose clients need a token and a certificate, and the files of both."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.control = StateInMemory("m")
        certificates = Certificates(folder)
        self.ssl_config = ssl_config_pb2.SSLConfig(
            server_key=certificates.text("server.key"),
            server_cert=certificates.text("server.cert"),
            custom_ca=certificates.text("ca.cert"),
            client_verify=True,
        )
        self.write("ssl", str(self.ssl_config))
        self.write("token", f"{TOKEN}\n")
        self.run_dir = folder / "run"
        self.run_dir.mkdir()

    def write(self, name: str, text: str) -> str:
        """Writes a file; returns its path."""
        (self.folder / name).write_text(text)
        return self.path(name)

    def path(self, name: str) -> str:
        return str(self.folder / name)

    def flags(self, *without: str) -> list[str]:
        """Returns the options with which a client may call."""
        files = {
            "token_file": "token",
            "ca_file": "ca.cert",
            "cert_file": "client.cert",
            "key_file": "client.key",
        }
        given = {option: name for option, name in files.items() if option not in without}
        return [f"--{option}={self.path(name)}" for option, name in given.items()]


@pytest.fixture
def secured(tmp_path: Path) -> Secured:
    return Secured(tmp_path)


@pytest.fixture
def trainer(secured: Secured) -> Iterator[TrainerAdmin]:
    config = OnlineConfig(
        source="file:events",
        admin="localhost:0",
        admin_token_file=secured.path("token"),
        admin_ssl_config_file=secured.path("ssl"),
    )
    access = read_admin_access(config)
    assert access is not None
    with TrainerAdmin(access, secured.control, secured.run_dir) as admin:
        yield admin


def test_a_trainer_is_called_with_token_and_certificate(
    secured: Secured, trainer: TrainerAdmin, capsys: Any
) -> None:
    for place in (str(secured.run_dir), trainer.address):
        assert main(["pause", place, *secured.flags()]) == 0
        assert main(["resume", place, *secured.flags()]) == 0
    assert secured.control.forced == [False, False]


@pytest.mark.parametrize(
    ("without", "expected"),
    [
        (["token_file"], "give it with --token_file"),
        (["cert_file", "key_file"], "does not answer"),
        (["ca_file"], "does not answer"),
    ],
    ids=["no token", "no certificate", "no authority"],
)
def test_a_trainer_is_not_called_without(
    without: list[str], expected: str, secured: Secured, trainer: TrainerAdmin, capsys: Any
) -> None:
    assert main(["pause", str(secured.run_dir), *secured.flags(*without)]) == 1
    assert expected in capsys.readouterr().err
    assert secured.control.state.state == online_pb2.TrainerStatus.TRAINING


def test_authorities_must_be_certificates(secured: Secured, capsys: Any) -> None:
    wrong = secured.write("wrong", "no certificate")
    assert main(["status", "localhost:1", "--ca_file", wrong]) == 2
    assert f"--ca_file {wrong} has no certificates" in capsys.readouterr().err


def test_status_reads_a_secured_trainer_and_secured_servers(
    secured: Secured,
    trainer: TrainerAdmin,
    redis_server: Any,
    start_server: Any,
    tmp_path: Path,
    capsys: Any,
) -> None:
    model = MarkedModel(tmp_path / "models", redis_server.url)
    secured.control.state.publishing.store = redis_server.url
    secured.ssl_config.client_verify = False
    server_tokens = secured.write("server_tokens", f"{OF_SERVER}\n")
    server = start_server(
        "m",
        model.path,
        *CACHE,
        metrics(tmp_path),
        f"--admin_port={free_port()}",
        f"--admin_token_file={server_tokens}",
        f"--admin_ssl_config_file={secured.write('server_ssl', str(secured.ssl_config))}",
    )
    server.wait_ready()
    model.wait_until_noted(model.write(1))
    command = ["status", str(secured.run_dir), "--json", "--seconds", "0.2", *secured.flags()]
    assert main([*command, "--server_token_file", server_tokens]) == 0
    found = json.loads(capsys.readouterr().out)
    (shown,) = found["servers"]
    assert shown["metrics"].startswith("https://")
    assert shown["page"]["step"] == 1001
    assert main(command) == 1
    (problem,) = json.loads(capsys.readouterr().out)["problems"]
    assert "needs a token; give it with --server_token_file" in problem["text"]
    model.close()
