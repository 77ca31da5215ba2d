"""Calls of a trainer's admin service."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc

from hotrow.admin.address import LOOPBACK, split_address
from hotrow.admin.answered import ANSWERED
from hotrow.cli.token_file import read_token
from hotrow.errors import InvalidArgumentError, NotFoundError, UnavailableError, from_status
from hotrow.protos import online_pb2, online_pb2_grpc

_CALL_SECONDS = 10.0
# Longer than a trainer waits for the step that is under way.
_STEP_SECONDS = 90.0
# A rollback writes a cut; a large one takes its time.
_ROLLBACK_SECONDS = 600.0


@dataclass(frozen=True)
class TrainerAccess:
    """How to call a trainer.

    Attributes:
        token: "": none.
        tls: whether to use TLS, also where the run does not say so.
        authorities: PEM; None: those of the system.
        certificate: PEM, of this client; None: it shows none.
        key: its private key.
    """

    token: str = ""
    tls: bool = False
    authorities: bytes | None = None
    certificate: bytes | None = None
    key: bytes | None = None

    def channel(self, address: str, tls: bool) -> grpc.Channel:
        """Returns a channel to an address.

        Args:
            address: `host:port`.
            tls: whether the trainer is known to use TLS.
        """
        if not (tls or self.tls):
            return grpc.insecure_channel(address)
        credentials = grpc.ssl_channel_credentials(self.authorities, self.key, self.certificate)
        return grpc.secure_channel(address, credentials)


def read_trainer_access(
    *, token_file: str, tls: bool, ca_file: str, cert_file: str, key_file: str
) -> TrainerAccess:
    """Returns the access that options name; "" stands for no file.

    Raises:
        NotFoundError: a file cannot be read.
        InvalidArgumentError: the file of the token is empty, or of certificate and key one is
            missing.
    """
    if bool(cert_file) != bool(key_file):
        given, missing = ("cert", "key") if cert_file else ("key", "cert")
        raise InvalidArgumentError(f"--{given}_file without --{missing}_file; give both")
    return TrainerAccess(
        read_token("token_file", token_file),
        tls or bool(ca_file) or bool(cert_file),
        _content("ca_file", ca_file) or None,
        _content("cert_file", cert_file) or None,
        _content("key_file", key_file) or None,
    )


def _content(option: str, path: str) -> bytes:
    try:
        return Path(path).read_bytes() if path else b""
    except OSError as err:
        raise NotFoundError(f"--{option} {path} cannot be read: {err.strerror}") from err


class TrainerClient:
    """Calls one trainer; use it in a `with` statement.

    All calls raise UnavailableError if the trainer does not answer, and else what the trainer
    answered, as an error of `hotrow.errors`.

    Attributes:
        address: `host:port`.
    """

    def __init__(self, address: str, access: TrainerAccess, tls: bool = False) -> None:
        """Prepares a connection; the first call opens it.

        Args:
            address: `host:port`.
            access: how to call it.
            tls: whether the trainer is known to use TLS.
        """
        self.address = address
        self._metadata = [("authorization", f"Bearer {access.token}")] if access.token else []
        self._channel = access.channel(address, tls)
        self._stub = online_pb2_grpc.OnlineTrainerStub(self._channel)

    def __enter__(self) -> TrainerClient:
        return self

    def __exit__(self, *_: object) -> None:
        self._channel.close()

    def status(self, seconds: float = _CALL_SECONDS) -> online_pb2.TrainerStatus:
        """Returns the state now."""
        return self._state(self._stub.Status, online_pb2.StatusRequest(), seconds)

    def pause(self, reason: str) -> online_pb2.TrainerStatus:
        """Pauses; returns the state after that."""
        return self._state(self._stub.Pause, online_pb2.PauseRequest(reason=reason))

    def resume(self, force: bool) -> online_pb2.TrainerStatus:
        """Resumes; returns the state after that."""
        return self._state(self._stub.Resume, online_pb2.ResumeRequest(force=force))

    def rollback(self, to: str) -> str:
        """Rolls back to a cut; returns the 16 digits of the new cut."""
        request = online_pb2.RollbackRequest(to=to)
        return str(self._call(self._stub.Rollback, request, _ROLLBACK_SECONDS).cut)

    def _state(
        self, method: Callable[..., Any], request: Any, seconds: float = _STEP_SECONDS
    ) -> online_pb2.TrainerStatus:
        state: online_pb2.TrainerStatus = self._call(method, request, seconds)
        return state

    def _call(self, method: Callable[..., Any], request: Any, seconds: float) -> Any:
        try:
            return method(request, timeout=seconds, metadata=self._metadata)
        except grpc.RpcError as err:
            code, text = err.code(), err.details() or ""
            answered = ANSWERED in dict(err.trailing_metadata() or ())
        if not answered:
            hint = ""
            if split_address(self.address)[0] in LOOPBACK:
                hint = "; it listens on localhost: if it runs on another machine, call it there"
            raise UnavailableError(f"the trainer at {self.address} does not answer: {text}{hint}")
        if code is grpc.StatusCode.UNAUTHENTICATED:
            text += "; give it with --token_file"
        raise from_status(code.value[0], f"the trainer at {self.address}: {text}")
