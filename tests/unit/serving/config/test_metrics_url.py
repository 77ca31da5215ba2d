"""The URL of a server's page of metrics."""

from __future__ import annotations

from typing import Any

import pytest

from hotrow.serving.config.admin_options import AdminOptions
from hotrow.serving.config.metrics_url import metrics_url
from hotrow.serving.config.options import ServeOptions

PATH = "/monitoring/prometheus/metrics"


@pytest.mark.parametrize(
    ("rest", "admin", "facts", "expected"),
    [
        (8501, 0, {}, "http://{host}:8501/monitoring/prometheus/metrics"),
        (8501, 0, {"rest_tls": True}, "https://{host}:8501/monitoring/prometheus/metrics"),
        (8501, 9000, {}, "http://{host}:9000/monitoring/prometheus/metrics"),
        (
            8501,
            9000,
            {"admin_host": "localhost", "admin_tls": True},
            "https://localhost:9000/monitoring/prometheus/metrics",
        ),
        (8501, 9000, {"admin_host": "::1"}, "http://[::1]:9000/monitoring/prometheus/metrics"),
        (8501, 9000, {"admin_host": "0.0.0.0"}, "http://{host}:9000/monitoring/prometheus/metrics"),
        (0, 0, {}, ""),
    ],
)
def test_it_names_the_port_that_has_the_page(
    rest: int, admin: int, facts: dict[str, Any], expected: str
) -> None:
    options = ServeOptions(
        model_name="m",
        model_base_path="/m",
        rest_api_port=rest,
        admin=AdminOptions(admin_port=admin),
    )
    settings = {"rest_tls": False, "admin_host": "", "admin_tls": False, **facts}
    assert metrics_url(options, PATH, **settings) == expected
    assert metrics_url(options, None, **settings) == ""
