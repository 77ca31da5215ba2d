"""`--admin_port`: reloads and metrics on a port of their own, for whom the operator trusts."""

from __future__ import annotations

import http.client
import os
import signal
import ssl
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import grpc
import pytest
from certificates import Certificates
from free_ports import free_port
from integration.serving.model_configs import ask, model, refusal, reload, states
from integration.serving.refused_starts import refused_start
from integration.serving.server_processes import control_of
from tensorflow_serving.apis import model_service_pb2_grpc

from hotrow.protos import ssl_config_pb2

METRICS = "/monitoring/prometheus/metrics"
TOKEN = "q9d3-operator"


class AdminClient:
    """Requests to an admin port.

    Attributes:
        port: its number.
    """

    def __init__(self, port: int, credentials: grpc.ChannelCredentials | None = None) -> None:
        self.port = port
        address = f"localhost:{port}"
        self._channel = (
            grpc.insecure_channel(address)
            if credentials is None
            else grpc.secure_channel(address, credentials)
        )
        stub = model_service_pb2_grpc.ModelServiceStub(self._channel)
        self.models: Any = stub

    def with_token(self, token: str) -> Any:
        """Returns what calls ModelService with a token, as `model_configs` uses a server."""
        metadata = [("authorization", f"Bearer {token}")]

        def send(request: Any, **options: Any) -> Any:
            return self.models.HandleReloadConfigRequest(request, metadata=metadata, **options)

        return SimpleNamespace(models=SimpleNamespace(HandleReloadConfigRequest=send))

    def page(
        self, path: str = METRICS, token: str = "", tls: ssl.SSLContext | None = None
    ) -> tuple[int, str]:
        """Returns HTTP status and body of a GET."""
        if tls is None:
            connection = http.client.HTTPConnection("localhost", self.port, timeout=20)
        else:
            connection = http.client.HTTPSConnection(
                "localhost", self.port, timeout=20, context=tls
            )
        try:
            headers = {"Authorization": f"Bearer {token}"} if token else {}
            connection.request("GET", path, headers=headers)
            reply = connection.getresponse()
            return reply.status, reply.read().decode()
        finally:
            connection.close()

    def close(self) -> None:
        """Closes the channel."""
        self._channel.close()


@pytest.fixture(scope="module")
def token_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("token") / "tokens"
    path.write_text(f"{TOKEN}\n")
    return path


@pytest.fixture(scope="module")
def server(
    two: Path,
    token_file: Path,
    tmp_path_factory: pytest.TempPathFactory,
    start_shared_server: Any,
) -> Any:
    """A server of the model `two` with an admin port that needs a token."""
    monitoring = tmp_path_factory.mktemp("config") / "monitoring"
    monitoring.write_text("prometheus_config { enable: true }")
    port = free_port()
    server = start_shared_server(
        "two",
        two.parent,
        f"--admin_port={port}",
        f"--admin_token_file={token_file}",
        f"--monitoring_config_file={monitoring}",
    )
    server.admin_port = port
    server.wait_ready()
    return server


@pytest.fixture
def admin(server: Any) -> Iterator[AdminClient]:
    client = AdminClient(server.admin_port)
    yield client
    client.close()


def test_the_ports_of_clients_answer_neither_reloads_nor_metrics(server: Any) -> None:
    code, text = refusal(lambda: reload(server))
    assert code == "PERMISSION_DENIED"
    assert "--admin_port" in text
    status, text = server.rest(METRICS)
    assert status == 403
    assert "--admin_port" in text
    assert ask(server, "two") == (3.0, 123)
    assert states(server, "two") == {123: "AVAILABLE"}


def test_the_admin_port_reloads_for_a_token(
    server: Any, admin: AdminClient, two: Path, three: Path
) -> None:
    both = model("two", two.parent), model("three", three.parent)
    reload(admin.with_token(TOKEN), *both)
    assert ask(server, "three") == (4.0, 123)
    for client in (admin, admin.with_token(TOKEN + "x"), admin.with_token("")):
        code, text = refusal(lambda client=client: reload(client))
        assert code == "UNAUTHENTICATED"
        assert "--admin_token_file" in text
    assert ask(server, "three") == (4.0, 123)


def test_the_admin_port_has_the_metrics_for_a_token(server: Any, admin: AdminClient) -> None:
    assert admin.page()[0] == 401
    assert admin.page(token=TOKEN[:-1])[0] == 401
    status, text = admin.page(token=TOKEN)
    assert status == 200
    assert "# TYPE hotrow_build_info gauge" in text
    assert admin.page("/v1/models/two", TOKEN)[0] == 404


def test_tokens_are_read_again_when_their_file_changes(
    server: Any, admin: AdminClient, token_file: Path
) -> None:
    try:
        token_file.write_text("")
        assert admin.page(token=TOKEN)[0] == 200
        token_file.write_text(f"another\n{TOKEN}\n")
        assert [admin.page(token=token)[0] for token in (TOKEN, "another")] == [200, 200]
        token_file.write_text("another\n")
        assert [admin.page(token=token)[0] for token in (TOKEN, "another")] == [401, 200]
    finally:
        token_file.write_text(f"{TOKEN}\n")


def test_the_next_control_process_has_the_port_again(
    server: Any, admin: AdminClient, two: Path
) -> None:
    os.kill(control_of(server), signal.SIGKILL)
    server.wait_for_log("the control process serves again")
    assert admin.page(token=TOKEN)[0] == 200
    reload(admin.with_token(TOKEN), model("two", two.parent))
    assert refusal(lambda: reload(server))[0] == "PERMISSION_DENIED"


def test_certificates_of_clients_open_it(base: Path, tmp_path: Path, start_server: Any) -> None:
    certificates = Certificates(tmp_path)
    (tmp_path / "ssl").write_text(
        str(
            ssl_config_pb2.SSLConfig(
                server_key=certificates.text("server.key"),
                server_cert=certificates.text("server.cert"),
                custom_ca=certificates.text("ca.cert"),
                client_verify=True,
            )
        )
    )
    (tmp_path / "monitoring").write_text("prometheus_config { enable: true }")
    port = free_port()
    server = start_server(
        "half",
        base,
        f"--admin_port={port}",
        f"--admin_ssl_config_file={tmp_path}/ssl",
        f"--monitoring_config_file={tmp_path}/monitoring",
    )
    server.wait_ready()
    parts = [certificates.text(name).encode() for name in ("ca.cert", "client.key", "client.cert")]
    trusted = AdminClient(port, grpc.ssl_channel_credentials(*parts))
    stranger = AdminClient(port, grpc.ssl_channel_credentials(parts[0]))
    try:
        reload(trusted, model("half", base))
        assert refusal(lambda: reload(stranger))[0] == "UNAVAILABLE"
    finally:
        trusted.close()
        stranger.close()
    context = ssl.create_default_context(cafile=str(tmp_path / "ca.cert"))
    # Prometheus and curl offer both; it is not HTTP/2 that they get.
    context.set_alpn_protocols(["h2", "http/1.1"])
    with pytest.raises((ssl.SSLError, ConnectionError)):
        trusted.page(tls=context)
    context.load_cert_chain(tmp_path / "client.cert", tmp_path / "client.key")
    assert trusted.page(tls=context)[0] == 200


def test_it_listens_on_this_machine_alone_without_a_guard(
    base: Path, tmp_path: Path, start_server: Any
) -> None:
    port = free_port()
    server = start_server("half", base, f"--admin_port={port}")
    server.wait_ready()
    admin = AdminClient(port)
    try:
        reload(admin, model("half", base))
    finally:
        admin.close()
    addresses = set()
    for file in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{file}").read_text().splitlines()[1:]:
            address, number = line.split()[1].split(":")
            if int(number, 16) == port and line.split()[3] == "0A":
                addresses.add(address)
    assert "0100007F" in addresses
    assert not addresses & {"00000000", 32 * "0"}
    assert server.terminate() == 0


def test_a_host_of_another_machine_is_refused(base: Path, start_server: Any) -> None:
    server = start_server("half", base, f"--admin_port={free_port()}", "--admin_host=192.0.2.1")
    assert server.wait_exit() == 255
    assert "of 192.0.2.1 cannot be used: " in server.log[-1]


@pytest.mark.parametrize(
    ("flags", "text"),
    [
        pytest.param(["--admin_token_file=x"], "without --admin_port", id="no port"),
        pytest.param(["--admin_port=70000"], "out of range", id="no such port"),
        pytest.param(["--admin_port=1", "--admin_token_file=/no"], "cannot be read", id="no file"),
        pytest.param(
            ["--admin_port=1", "--admin_token_file=/dev/null"], "has no token", id="no token"
        ),
    ],
)
def test_flags_that_guard_nothing_are_refused(base: Path, flags: list[str], text: str) -> None:
    assert text in refused_start("half", base, *flags)[-1]
