"""GetModelStatus over gRPC."""

from __future__ import annotations

from typing import Any

from tensorflow_serving.apis import get_model_status_pb2


def test_a_version_may_be_asked_for_and_a_label_does_not_matter(half_plus_two: Any) -> None:
    request = get_model_status_pb2.GetModelStatusRequest()
    request.model_spec.name = "half"
    replies = []
    for spec in ({}, {"version": {"value": 123}}, {"version_label": "nobody"}):
        request.model_spec.MergeFrom(type(request.model_spec)(**spec))
        replies.append(half_plus_two.models.GetModelStatus(request, timeout=30))
        (entry,) = replies[-1].model_version_status
        assert (entry.version, entry.state) == (123, entry.AVAILABLE)
    assert replies[0] == replies[1] == replies[2]
