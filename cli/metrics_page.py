"""A page of metrics, read over HTTP."""

from __future__ import annotations

import math
import ssl
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from prometheus_client.parser import text_string_to_metric_families

from hotrow.errors import DataLossError, PermissionDeniedError, UnavailableError

_SECONDS = 5.0
_MOST_BYTES = 64 << 20


@dataclass(frozen=True)
class MetricsPage:
    """The samples of a page.

    Attributes:
        time: when it was read, of `time.monotonic`.
        samples: by name, values with their labels.
    """

    time: float
    samples: Mapping[str, list[tuple[Mapping[str, str], float]]]

    def of(self, name: str, **labels: str) -> Iterator[tuple[Mapping[str, str], float]]:
        """Yields the samples of a name that have these labels."""
        for found, value in self.samples.get(name, ()):
            if all(found.get(key) == wanted for key, wanted in labels.items()):
                yield found, value

    def sum(self, name: str, **labels: str) -> float:
        """Returns the sum of such samples; 0 if there is none."""
        return sum(value for _, value in self.of(name, **labels))

    def buckets(self, name: str, **labels: str) -> dict[float, float]:
        """Returns cumulative counts of a histogram by bound, over all other labels."""
        counts: dict[float, float] = {}
        for found, value in self.of(f"{name}_bucket", **labels):
            bound = float(found["le"])
            counts[bound] = counts.get(bound, 0.0) + value
        return counts


def read_page(url: str, token: str, tls: ssl.SSLContext | None) -> MetricsPage:
    """Returns the page of an address.

    Args:
        url: `http://` or `https://`.
        token: "": none.
        tls: for https; None: the system's authorities.

    Raises:
        UnavailableError: nothing answers there, or not with a page.
        PermissionDeniedError: it needs a token, or another one.
        DataLossError: what it answers is no page of metrics.
    """
    request = urllib.request.Request(url)
    if token:
        request.add_header("Authorization", f"Bearer {token}")
    try:
        with urllib.request.urlopen(request, timeout=_SECONDS, context=tls) as reply:
            text = reply.read(_MOST_BYTES).decode("utf-8", "replace")
    except urllib.error.HTTPError as err:
        if err.code == 401:
            raise PermissionDeniedError(
                f"{url} needs a token; give it with --server_token_file"
            ) from err
        raise UnavailableError(
            f"{url}: HTTP {err.code}; give the address of a page of metrics (the REST port with "
            "--monitoring_config_file, or the --admin_port of `platform serve`)"
        ) from err
    except (OSError, ValueError) as err:
        raise UnavailableError(f"{url} does not answer: {getattr(err, 'reason', err)}") from err
    return parse_page(text, url)


def parse_page(text: str, url: str) -> MetricsPage:
    """Returns the samples of a page in Prometheus' text format.

    Raises:
        DataLossError: it is no such page.
    """
    samples: dict[str, list[tuple[Mapping[str, str], float]]] = {}
    try:
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                samples.setdefault(sample.name, []).append((sample.labels, sample.value))
    except ValueError as err:
        raise DataLossError(f"{url} is no page of metrics: {err}") from err
    return MetricsPage(time.monotonic(), samples)


def quantile(share: float, buckets: Mapping[float, float]) -> float | None:
    """Returns a quantile of a histogram as Prometheus' `histogram_quantile` does.

    Args:
        share: such as 0.99.
        buckets: cumulative counts by bound, the last one infinite.

    Returns:
        None without values; the largest finite bound if it is above that.
    """
    bounds = sorted(buckets)
    if not bounds or not buckets[bounds[-1]]:
        return None
    wanted = share * buckets[bounds[-1]]
    below_bound, below = 0.0, 0.0
    for bound in bounds:
        if buckets[bound] >= wanted:
            if math.isinf(bound):
                return below_bound
            inside = buckets[bound] - below
            return below_bound + (bound - below_bound) * (wanted - below) / max(inside, 1e-12)
        below_bound, below = bound, buckets[bound]
    return below_bound
