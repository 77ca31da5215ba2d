"""The page of metrics that a server has for Prometheus."""

from __future__ import annotations

import re
from typing import Any

PATH = "/monitoring/prometheus/metrics"
_SAMPLE = re.compile(r'([\w:]+)\{((?:\w+="(?:[^"\\]|\\.)*",?)*)\} (\S+)')


def page_of(server: Any, path: str = PATH) -> str:
    """Returns the page as it is."""
    status, page = server.rest(path)
    assert status == 200
    return page


def samples_of(server: Any) -> dict[str, float]:
    """Returns value by `name{labels}`; every line must be a type or a sample."""
    values = {}
    for line in page_of(server).splitlines():
        if re.fullmatch(r"# (HELP [\w:]+ .+|TYPE [\w:]+ (counter|gauge|histogram))", line):
            continue
        sample = _SAMPLE.fullmatch(line)
        assert sample, line
        values[f"{sample[1]}{{{sample[2]}}}"] = float(sample[3])
    return values
