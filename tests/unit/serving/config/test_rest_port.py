"""What the executable is asked for about REST, and the memory of requests."""

from __future__ import annotations

import pytest

from hotrow.errors import InvalidArgumentError
from hotrow.memory_bounds import MemoryBound
from hotrow.serving.config.admin_options import AdminOptions
from hotrow.serving.config.options import ServeOptions
from hotrow.serving.config.rest_port import request_memory_bytes, rest_request
from hotrow.serving.config.transport_options import TransportOptions

MIB = 1 << 20


def _bound(most_bytes: int) -> MemoryBound:
    return MemoryBound("", "the machine", most_bytes, free_bytes=0)


@pytest.mark.parametrize(
    ("bounds", "expected"),
    [
        pytest.param([8192 * MIB, 1024 * MIB], 256 * MIB, id="of the smallest bound"),
        pytest.param([100 * MIB], 64 * MIB, id="64 MiB at least"),
        pytest.param([], 64 * MIB, id="no bound is known"),
    ],
)
def test_requests_have_a_quarter_of_the_memory_unless_told(
    bounds: list[int], expected: int
) -> None:
    found = [_bound(most_bytes) for most_bytes in bounds]
    assert request_memory_bytes(None, lambda: found) == expected
    assert request_memory_bytes(7, lambda: found) == 7


@pytest.mark.parametrize(
    "flag", ["rest_api_max_body_bytes", "rest_api_read_timeout_in_ms", "request_memory_bytes"]
)
def test_limits_of_requests_are_at_least_1(flag: str) -> None:
    with pytest.raises(InvalidArgumentError, match=f"--{flag} 0 is out of range"):
        TransportOptions(**{flag: 0})


def test_rest_is_asked_for_with_its_port() -> None:
    assert rest_request(ServeOptions(model_base_path="m"), None, "/metrics") is None
    options = ServeOptions(
        model_base_path="m", rest_api_port=8501, admin=AdminOptions(admin_port=8502)
    )
    request = rest_request(options, None, "/metrics")
    assert request is not None
    assert (request.port, request.max_threads, request.run_millis) == (8501, 0, 30_000)
    assert (request.metrics_path, request.metrics_elsewhere) == ("/metrics", True)
    assert not request.HasField("tls")
