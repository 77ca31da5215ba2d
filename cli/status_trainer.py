"""The trainer's part of `platform status`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from google.protobuf import json_format

from hotrow.cli.status_report import Bounds, Problem, counted
from hotrow.protos import online_pb2

_State = online_pb2.TrainerStatus.State


def trainer_part(address: str, status: online_pb2.TrainerStatus) -> dict[str, Any]:
    """Returns a status as JSON types: the fields of `protos/online.proto`, and ages.

    Args:
        address: at which the trainer answered.
        status: its answer.
    """
    whole = online_pb2.TrainerStatus()
    whole.CopyFrom(status)
    for part in (whole.stream, whole.checkpoints, whole.publishing, whole.publishing.gate):
        part.SetInParent()  # a trainer that publishes nothing leaves these out
    fields = json_format.MessageToDict(
        whole, preserving_proto_field_name=True, always_print_fields_with_no_presence=True
    )
    fields["state"] = state_name(status)
    publishing, checkpoints = status.publishing, status.checkpoints
    return {
        "answers": True,
        "why": None,
        "address": address,
        **_with_numbers(fields, online_pb2.TrainerStatus.DESCRIPTOR),
        "cut_age_seconds": (
            max(0.0, status.time - publishing.last.committed)
            if publishing.HasField("last")
            else None
        ),
        "checkpoint_age_seconds": (
            max(0.0, status.time - checkpoints.time) if checkpoints.HasField("time") else None
        ),
    }


def state_name(status: online_pb2.TrainerStatus) -> str:
    """Returns the state in lower case."""
    try:
        return str(_State.Name(status.state)).lower()
    except ValueError:  # of a newer trainer
        return f"state {status.state}"


def trainer_problems(status: online_pb2.TrainerStatus, bounds: Bounds) -> Iterator[Problem]:
    """Yields what is wrong with a trainer."""
    publishing = status.publishing
    if status.state != online_pb2.TrainerStatus.TRAINING:
        reason = f": {status.reason}" if status.reason else ""
        yield Problem("trainer", f"it is {state_name(status).replace('_', ' ')}{reason}")
    if publishing.gate.closed and status.state != online_pb2.TrainerStatus.GATE_CLOSED:
        yield Problem("trainer", f"its gate is closed: {publishing.gate.reason}")
    if status.stream.trouble:
        yield Problem("trainer", f"its source does not answer: {status.stream.trouble}")
    if status.stream.lag_seconds > bounds.lag_seconds:
        yield Problem(
            "trainer",
            f"it is {status.stream.lag_seconds:.0f} s behind its source; {bounds.lag_seconds:g} s "
            "are allowed (--lag_seconds)",
        )
    if publishing.failures:
        yield Problem(
            "trainer",
            f"{counted(publishing.failures, 'cut')} in a row failed, the last one by: "
            f"{publishing.error}",
        )
    if status.checkpoints.failures:
        yield Problem(
            "trainer",
            f"{counted(status.checkpoints.failures, 'checkpoint')} failed since the last one: "
            f"{status.checkpoints.error}",
        )
    if publishing.canary.trouble:
        yield Problem("trainer", f"its canary: {publishing.canary.trouble}")


def _with_numbers(fields: dict[str, Any], message: Any) -> dict[str, Any]:
    """Returns JSON types with int64 as numbers, which protobuf writes as text.

    Args:
        fields: of a message.
        message: its descriptor.
    """
    converted = {}
    for name, value in fields.items():
        field = message.fields_by_name[name]
        many = value if isinstance(value, list) else [value]
        if field.message_type is not None:
            many = [_with_numbers(each, field.message_type) for each in many]
        elif field.cpp_type == field.CPPTYPE_INT64:
            many = [int(each) for each in many]
        converted[name] = many if isinstance(value, list) else many[0]
    return converted
