"""HTTP codes of refused REST requests, by gRPC code."""

from __future__ import annotations

from hotrow.serving.rest.handler import _HTTP_STATUS
from hotrow.serving.wire.status import Code

EXPECTED = {
    200: {"OK"},
    400: {"INVALID_ARGUMENT", "FAILED_PRECONDITION", "OUT_OF_RANGE"},
    401: {"UNAUTHENTICATED"},
    403: {"PERMISSION_DENIED"},
    404: {"NOT_FOUND"},
    409: {"ALREADY_EXISTS", "ABORTED"},
    429: {"RESOURCE_EXHAUSTED"},
    499: {"CANCELLED"},
    500: {"UNKNOWN", "INTERNAL", "DATA_LOSS"},
    501: {"UNIMPLEMENTED"},
    503: {"UNAVAILABLE"},
    504: {"DEADLINE_EXCEEDED"},
}


def test_every_code_has_the_http_code_of_tensorflow_serving() -> None:
    expected = {Code[name]: status for status, names in EXPECTED.items() for name in names}
    assert expected == _HTTP_STATUS
