"""The servers' part of `platform status`: from their leases, and from their pages of metrics."""

from __future__ import annotations

import ssl
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from hotrow.cli.metrics_page import MetricsPage, quantile, read_page
from hotrow.cli.status_report import Bounds, Problem, counted, unanswered
from hotrow.cli.status_store import behind
from hotrow.errors import HotrowError
from hotrow.serving.monitoring.prometheus import DEFAULT_PATH

_LATENCY = "hotrow_request_latency_microseconds"
_MOST_THREADS = 16
# Those that are not the client's.
_FAILURES = (
    "UNKNOWN",
    "DEADLINE_EXCEEDED",
    "RESOURCE_EXHAUSTED",
    "ABORTED",
    "INTERNAL",
    "UNAVAILABLE",
    "DATA_LOSS",
)


class ServerPages:
    """Reads the pages of servers again and again; rates are those between two readings.

    Args:
        model: whose metrics to read.
        token: for the pages; "": none.
        tls: for https pages; None: the system's authorities.

    Attributes:
        model: as given.
    """

    def __init__(self, model: str, token: str = "", tls: ssl.SSLContext | None = None) -> None:
        self.model = model
        self._token = token
        self._tls = tls
        self._before: dict[str, MetricsPage] = {}

    def read(self, addresses: Sequence[str]) -> dict[str, dict[str, Any]]:
        """Returns what the pages say, by their URLs; a page that cannot be read says why."""
        if not addresses:
            return {}
        with ThreadPoolExecutor(min(len(addresses), _MOST_THREADS)) as threads:
            return dict(zip(addresses, threads.map(self._one, addresses), strict=True))

    def _one(self, address: str) -> dict[str, Any]:
        try:
            page = read_page(address, self._token, self._tls)
        except HotrowError as err:
            self._before.pop(address, None)
            return unanswered(err)
        before = self._before.get(address)
        self._before[address] = page
        return server_facts(page, before, self.model)


def page_url(address: str) -> str:
    """Returns the address of a page: a scheme and the default path are added if they lack."""
    scheme, found, rest = address.rpartition("://")
    host, slash, path = rest.partition("/")
    return f"{scheme if found else 'http'}://{host}{slash + path if path else DEFAULT_PATH}"


def server_facts(page: MetricsPage, before: MetricsPage | None, model: str) -> dict[str, Any]:
    """Returns what a page says of a model, as JSON types.

    Args:
        page: as it is.
        before: as it was; None: counts since the server's start stand for those in between.
        model: its name.
    """
    of = {"model_name": model}

    def grown(name: str, **labels: str) -> float:
        """Returns by how much a counter grew; a restarted one has grown from 0."""
        now = page.sum(name, **of, **labels)
        then = before.sum(name, **of, **labels) if before else 0.0
        return now - then if now >= then else now

    requests = grown("hotrow_requests_total")
    failed = sum(grown("hotrow_requests_total", status=status) for status in _FAILURES)
    hits, misses = grown("hotrow_cache_hits_total"), grown("hotrow_cache_misses_total")
    # A row of a cut in memory is a miss of the cache, and no read of the store.
    hits_of_cuts = min(misses, grown("hotrow_cut_rows_read_total"))
    seconds = page.time - before.time if before else None
    # While a version replaces another one, both are on the page: the newer one counts.
    shown = [(int(labels["version"]), int(v)) for labels, v in page.of("hotrow_cut_version", **of)]
    version, cut = max(shown, default=(None, None))
    own = {**of, "version": str(version)}
    return {
        "answers": True,
        "why": None,
        "version": version,
        "cut": None if cut is None else f"{cut:016x}",
        "step": int(page.sum("hotrow_cut_step", **own)) if shown else None,
        "stale": page.sum("hotrow_cuts_are_stale", **own) > 0,
        "refuses": page.sum("hotrow_cut_is_refused", **own) > 0,
        "store_is_behind": page.sum("hotrow_store_is_behind", **own) > 0,
        "silent": page.sum("hotrow_server_is_silent") > 0,
        "over_seconds": seconds,
        "requests": int(requests),
        "errors": int(failed),
        "requests_per_second": requests / seconds if seconds else None,
        "p99_seconds": _p99(page, before, of),
        "hit_rate": (hits + hits_of_cuts) / (hits + misses) if hits + misses else None,
        "default_rows": int(grown("hotrow_default_rows_total")),
    }


def servers_part(
    pages: Mapping[str, dict[str, Any]], generation: dict[str, Any] | None
) -> list[dict[str, Any]]:
    """Returns the servers as JSON types: those with a lease, then further ones that were named.

    Args:
        pages: what `ServerPages` read.
        generation: the live one, as in the store's part; None: it is not known.
    """
    left = dict(pages)
    leases = generation["readers"] if generation is not None else []
    found = []
    for lease in leases:
        page = left.pop(page_url(lease["metrics"]), None) if lease["metrics"] else None
        found.append(
            {
                "name": lease["holder"],
                "metrics": lease["metrics"],
                "lease": lease,
                "page": page,
                "cut": lease["cut"],
                "behind_cuts": lease["behind_cuts"],
                "behind_seconds": lease["behind_seconds"],
            }
        )
    for address, page in left.items():
        cut = page.get("cut")
        known = generation is not None and cut is not None
        missing, seconds = behind(int(cut, 16), generation["cuts"]) if known else (None, None)  # type: ignore[index, arg-type]
        found.append(
            {
                "name": address,
                "metrics": address,
                "lease": None,
                "page": page,
                "cut": cut,
                "behind_cuts": missing,
                "behind_seconds": seconds,
            }
        )
    return found


def server_problems(servers: Sequence[dict[str, Any]], bounds: Bounds) -> Iterator[Problem]:
    """Yields what is wrong with servers."""
    for server in servers:
        name, page, lease = server["name"], server["page"], server["lease"]
        late = server["behind_seconds"]
        if late is not None and late > bounds.behind_seconds:
            yield Problem(
                "servers",
                f"{name} is {counted(server['behind_cuts'], 'cut')} behind, for {late:.1f} s; "
                f"{bounds.behind_seconds:g} s are allowed (--behind_seconds)",
            )
        if lease is not None and lease["overruled"]:
            yield Problem("servers", f"{name} held folding up for too long and was overruled")
        if page is None:
            continue
        if not page["answers"]:
            yield Problem("servers", f"{name}: {page['why']}", unanswered=True)
            continue
        for field, text in (
            ("stale", "cannot follow its store: its rows may be old"),
            ("refuses", "does not take the newest cut; its log says why"),
            ("store_is_behind", "shows what the store has lost"),
            ("silent", "does not answer predictions: hotrow-server is silent"),
        ):
            if page[field]:
                yield Problem("servers", f"{name} {text}")
        if page["errors"]:
            yield Problem(
                "servers",
                f"{name} failed {page['errors']:,} of {page['requests']:,} requests"
                + ("" if page["over_seconds"] is None else f" in {page['over_seconds']:.1f} s"),
            )


def _p99(page: MetricsPage, before: MetricsPage | None, of: Mapping[str, str]) -> float | None:
    """Returns the 99th percentile of requests between two readings, in seconds."""
    now = page.buckets(_LATENCY, **of)
    then = before.buckets(_LATENCY, **of) if before else {}
    grown = {bound: count - then.get(bound, 0.0) for bound, count in now.items()}
    if any(count < 0 for count in grown.values()):
        grown = now  # it was started again
    micros = quantile(0.99, grown)
    return None if micros is None else micros / 1e6
