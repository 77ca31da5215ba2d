"""The health check of a server, as a balancer asks."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from typing import Any

READY = (200, {"ready": True})
# Without an answer a server is not ready either: it hangs, or is started again.
NO_ANSWER = (0, None)
_TIMEOUT_SECONDS = 2.0


def probe(server: Any) -> tuple[int, Any]:
    """Returns status and body of `/v1/health/ready`, or `NO_ANSWER`."""
    url = f"http://127.0.0.1:{server.rest_port}/v1/health/ready"
    try:
        with urllib.request.urlopen(url, timeout=_TIMEOUT_SECONDS) as reply:
            return reply.status, json.load(reply)
    except urllib.error.HTTPError as err:
        with err:
            return err.code, json.load(err)
    except OSError:
        return NO_ANSWER
