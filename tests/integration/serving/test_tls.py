"""TLS on the gRPC and the REST port, with and without certificates of clients."""

from __future__ import annotations

import http.client
import socket
import ssl
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest
import tensorflow as tf
from certificates import Certificates
from integration.serving.refused_starts import refused_start
from tensorflow_serving.apis import predict_pb2, prediction_service_pb2_grpc

from hotrow.protos import ssl_config_pb2


class ServingCertificates(Certificates):
    """Certificates and the SSLConfigs that name them."""

    def config(self, path: Path, **changes: Any) -> Path:
        """Writes an SSLConfig and returns its path."""
        fields = {"server_key": self.text("server.key"), "server_cert": self.text("server.cert")}
        path.write_text(str(ssl_config_pb2.SSLConfig(**{**fields, **changes})))
        return path

    def mutual(self, path: Path) -> Path:
        """Writes one that asks clients for certificates."""
        return self.config(path, custom_ca=self.text("ca.cert"), client_verify=True)


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> ServingCertificates:
    return ServingCertificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture
def predict() -> Iterator[Callable[..., Any]]:
    """Requests half_plus_two of 1 over a channel, which is closed after the test."""
    channels = []

    def ask(channel: grpc.Channel) -> list[float]:
        channels.append(channel)
        request = predict_pb2.PredictRequest()
        request.model_spec.name = "half"
        request.inputs["x"].CopyFrom(tf.make_tensor_proto(np.array([1.0], np.float32)))
        stub = prediction_service_pb2_grpc.PredictionServiceStub(channel)
        return list(stub.Predict(request, timeout=20).outputs["y"].float_val)

    yield ask
    for channel in channels:
        channel.close()


def _secure(port: int, certificates: ServingCertificates, client: bool = False) -> grpc.Channel:
    files = ["ca.cert", *(["client.key", "client.cert"] if client else [])]
    parts = [certificates.text(file).encode() for file in files]
    return grpc.secure_channel(f"localhost:{port}", grpc.ssl_channel_credentials(*parts))


def _refused(predict: Callable[..., Any], channel: grpc.Channel) -> None:
    with pytest.raises(grpc.RpcError) as refused:
        predict(channel)
    assert refused.value.code() is grpc.StatusCode.UNAVAILABLE


def _rest_status(port: int, context: ssl.SSLContext) -> int:
    connection = http.client.HTTPSConnection("localhost", port, context=context, timeout=20)
    try:
        connection.request("POST", "/v1/models/half:predict", b'{"instances": [1.0]}')
        return connection.getresponse().status
    finally:
        connection.close()


def _rest_session(
    port: int, context: ssl.SSLContext, session: ssl.SSLSession | None
) -> tuple[ssl.SSLSession | None, bool | None]:
    """Asks over a session, or a new one; returns the session and whether it was resumed."""
    plain = socket.create_connection(("localhost", port), timeout=20)
    with context.wrap_socket(plain, server_hostname="localhost", session=session) as secure:
        secure.sendall(b"GET /v1/models/half HTTP/1.1\r\nConnection: close\r\n\r\n")
        assert secure.recv(100).startswith(b"HTTP/1.1 200 ")
        return secure.session, secure.session_reused


def test_the_grpc_port_speaks_tls_and_a_socket_does_not(
    base: Path, certificates: ServingCertificates, tmp_path: Path, start_server: Any, predict: Any
) -> None:
    config = certificates.config(tmp_path / "ssl")
    server = start_server(
        "half", base, f"--ssl_config_file={config}", f"--grpc_socket_path={tmp_path}/socket"
    )
    server.wait_ready()
    assert predict(_secure(server.port, certificates)) == [2.5]
    assert predict(grpc.insecure_channel(f"unix:{tmp_path}/socket")) == [2.5]
    _refused(predict, grpc.insecure_channel(f"localhost:{server.port}"))
    # REST is a port of its own.
    assert server.rest_predict({"instances": [1.0]})[0] == 200


def test_both_ports_ask_for_certificates_of_clients(
    base: Path, certificates: ServingCertificates, tmp_path: Path, start_server: Any, predict: Any
) -> None:
    config = certificates.mutual(tmp_path / "ssl")
    server = start_server(
        "half", base, f"--ssl_config_file={config}", f"--rest_api_ssl_config_file={config}"
    )
    server.wait_ready()
    assert predict(_secure(server.port, certificates, client=True)) == [2.5]
    _refused(predict, _secure(server.port, certificates))
    context = ssl.create_default_context(cafile=str(certificates.folder / "ca.cert"))
    with pytest.raises((ssl.SSLError, ConnectionError)):
        _rest_status(server.rest_port, context)
    files = (certificates.folder / "client.cert", certificates.folder / "client.key")
    context.load_cert_chain(*files)
    assert _rest_status(server.rest_port, context) == 200
    # Clients resume sessions on further connections.
    session, _ = _rest_session(server.rest_port, context, None)
    assert _rest_session(server.rest_port, context, session)[1]


def test_the_rest_port_speaks_tls(
    base: Path, certificates: ServingCertificates, tmp_path: Path, start_server: Any, predict: Any
) -> None:
    config = certificates.config(tmp_path / "ssl")
    server = start_server("half", base, f"--rest_api_ssl_config_file={config}")
    server.wait_ready()
    context = ssl.create_default_context(cafile=str(certificates.folder / "ca.cert"))
    assert _rest_status(server.rest_port, context) == 200
    # The gRPC port is not its business.
    assert predict(grpc.insecure_channel(f"localhost:{server.port}")) == [2.5]


@pytest.mark.parametrize("flag", ["ssl_config_file", "rest_api_ssl_config_file"])
@pytest.mark.parametrize(
    ("changes", "text"),
    [
        pytest.param({"server_key": "no key"}, "cannot be used", id="the key is no PEM"),
        pytest.param({"server_cert": ""}, "cannot be used", id="there is no certificate"),
        pytest.param(
            {"client_verify": True},
            "client_verify is true and custom_ca is empty",
            id="no client could come in",
        ),
        pytest.param(
            {"client_verify": True, "custom_ca": "no certificate"},
            "cannot be used",
            id="the authority is no PEM",
        ),
    ],
)
def test_it_does_not_start_when(
    base: Path,
    certificates: ServingCertificates,
    tmp_path: Path,
    flag: str,
    changes: dict[str, Any],
    text: str,
) -> None:
    config = certificates.config(tmp_path / "ssl", **changes)
    line = refused_start("half", base, f"--{flag}={config}")[-1]
    assert line.startswith(f"--{flag} {config}: ")
    assert text in line


def test_another_certificates_key_is_refused(
    base: Path, certificates: ServingCertificates, tmp_path: Path
) -> None:
    config = certificates.config(tmp_path / "ssl", server_key=certificates.text("client.key"))
    assert "KEY_VALUES_MISMATCH" in refused_start("half", base, f"--ssl_config_file={config}")[-1]


def test_a_file_that_is_no_text_proto_is_refused(base: Path, tmp_path: Path) -> None:
    (tmp_path / "ssl").write_text('server_key: "a" unknown: 1')
    log = refused_start("half", base, f"--ssl_config_file={tmp_path}/ssl")
    assert log[-1] == f"Invalid protobuf file: '{tmp_path}/ssl'"
    assert 'has no field named "unknown"' in log[-2]


@pytest.mark.parametrize(
    ("flags", "text"),
    [
        pytest.param([], "ALTS works between machines of Google Cloud only", id="alone"),
        pytest.param(
            ["--ssl_config_file=a"],
            "--use_alts_credentials and --ssl_config_file exclude each other",
            id="beside TLS",
        ),
    ],
)
def test_alts_is_refused(base: Path, flags: list[str], text: str) -> None:
    assert text in refused_start("half", base, "--use_alts_credentials", *flags)[-1]
