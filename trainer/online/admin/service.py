"""The gRPC service `hotrow.v1.OnlineTrainer` over a trainer's `Control`."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import grpc

from hotrow.admin.answered import ANSWERED
from hotrow.errors import HotrowError, InvalidArgumentError
from hotrow.protos import online_pb2, online_pb2_grpc
from hotrow.trainer.online.admin.control import Control

_LOG = logging.getLogger(__name__)
_STATUS = {code.value[0]: code for code in grpc.StatusCode}
# Rollback waits for the store; the other threads answer meanwhile.
_THREADS = 4
# Clients that leave connections open must not use all of them up.
_OPTIONS = (("grpc.max_connection_idle_ms", 300_000),)
_CUT = re.compile(r"[0-9a-f]{16}")
# gRPC sends messages in headers, whose size is limited.
_MOST_MESSAGE_CHARS = 1024

R = TypeVar("R")

Check = Callable[[str | None], None]
"""Takes the header `authorization` of a call; raises `HotrowError` to refuse it."""


class OnlineService:
    """Answers on an address until it is stopped."""

    def __init__(self, control: Control, check: Check, address: str) -> None:
        """Listens.

        Args:
            control: the trainer.
            check: refuses calls.
            address: of gRPC.
        """
        self._server = grpc.server(
            ThreadPoolExecutor(_THREADS, thread_name_prefix="admin"), options=_OPTIONS
        )
        online_pb2_grpc.add_OnlineTrainerServicer_to_server(_Servicer(control, check), self._server)
        self._server.add_insecure_port(address)
        self._server.start()

    def stop(self) -> None:
        """Aborts running calls and ends the server."""
        self._server.stop(None).wait()


class _Servicer(online_pb2_grpc.OnlineTrainerServicer):
    """The methods have the names of the proto; each answers or aborts with a status."""

    def __init__(self, control: Control, check: Check) -> None:
        self._control = control
        self._check = check

    def Status(  # noqa: N802
        self, request: online_pb2.StatusRequest, context: grpc.ServicerContext
    ) -> online_pb2.TrainerStatus:
        return self._answer(context, self._control.status)

    def Pause(  # noqa: N802
        self, request: online_pb2.PauseRequest, context: grpc.ServicerContext
    ) -> online_pb2.TrainerStatus:
        def pause() -> online_pb2.TrainerStatus:
            self._control.pause(request.reason)
            return self._control.status()

        return self._answer(context, pause)

    def Resume(  # noqa: N802
        self, request: online_pb2.ResumeRequest, context: grpc.ServicerContext
    ) -> online_pb2.TrainerStatus:
        def resume() -> online_pb2.TrainerStatus:
            self._control.resume(request.force)
            return self._control.status()

        return self._answer(context, resume)

    def Rollback(  # noqa: N802
        self, request: online_pb2.RollbackRequest, context: grpc.ServicerContext
    ) -> online_pb2.RollbackReply:
        def roll_back() -> online_pb2.RollbackReply:
            if not _CUT.fullmatch(request.to):
                raise InvalidArgumentError(
                    f"to: {request.to!r} is no cut; give its 16 hexadecimal digits, as `platform "
                    "status` shows them"
                )
            return online_pb2.RollbackReply(cut=self._control.rollback(request.to))

        return self._answer(context, roll_back)

    def _answer(self, context: grpc.ServicerContext, answer: Callable[[], R]) -> R:
        """Returns the answer, or ends the call with the status of what was raised."""
        try:
            self._check(dict(context.invocation_metadata()).get("authorization"))
            return answer()
        except HotrowError as err:
            code, message = _STATUS[err.grpc_status], str(err)
        except Exception as err:
            _LOG.error("unforeseen error", exc_info=err)
            code, message = grpc.StatusCode.INTERNAL, f"{type(err).__name__}: {err}"
        context.set_trailing_metadata(((ANSWERED, "1"),))
        context.abort(code, message[:_MOST_MESSAGE_CHARS])
        raise AssertionError("abort returned")
