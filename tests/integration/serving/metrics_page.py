"""The page of metrics that a server has for Prometheus."""

from __future__ import annotations

import re
import urllib.request
from typing import Any

PATH = "/monitoring/prometheus/metrics"
_SAMPLE = re.compile(r'([\w:]+)\{((?:\w+="(?:[^"\\]|\\.)*",?)*)\} (\S+)')


def page_of(server: Any, port: int | None = None) -> str:
    """Returns the page of the REST port, or of another one."""
    url = f"http://127.0.0.1:{port or server.rest_port}{PATH}"
    with urllib.request.urlopen(url, timeout=60) as reply:
        return reply.read().decode()


def samples_of(server: Any, port: int | None = None) -> dict[str, float]:
    """Returns value by `name{labels}`; every line must be a type or a sample."""
    values = {}
    for line in page_of(server, port).splitlines():
        if re.fullmatch(r"# (HELP [\w:]+ .+|TYPE [\w:]+ (counter|gauge|histogram))", line):
            continue
        sample = _SAMPLE.fullmatch(line)
        assert sample, line
        values[f"{sample[1]}{{{sample[2]}}}"] = float(sample[3])
    return values
