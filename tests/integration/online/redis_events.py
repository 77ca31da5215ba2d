"""Events in Redis Streams, for the tests of the source."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from event_runs import Reader
from redis_servers.standalone import RedisServer
from waiting import wait_until

from hotrow.errors import (
    HotrowError,
)

Call = Callable[..., Any]


def add(call: Call, stream: str, *events: Any, identity: str = "*") -> None:
    for one in events:
        payload = one if isinstance(one, str) else json.dumps(one)
        call("XADD", stream, identity, "event", payload)


def url_of(server: RedisServer, *streams: str, more: str = "") -> str:
    return f"{server.url}?" + "&".join(f"stream={one}" for one in streams) + more


def error_of(reader: Reader) -> HotrowError:
    raised: list[HotrowError] = []

    def fails() -> bool:
        try:
            reader.stream.next(0.1)
        except HotrowError as err:
            raised.append(err)
        return bool(raised)

    wait_until(fails, lambda: reader.items)
    return raised[0]


def group_lag(call: Call, stream: str, group: str) -> dict[str, Any]:
    for flat in call("XINFO", "GROUPS", stream):
        values = dict(zip(flat[::2], flat[1::2], strict=True)) if isinstance(flat, list) else flat
        found = {text_of(key): value for key, value in values.items()}
        if text_of(found["name"]) == group:
            return found
    return {}


def text_of(value: Any) -> Any:
    return value.decode() if isinstance(value, bytes) else value
