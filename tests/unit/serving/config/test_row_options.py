"""Which stores a manifest may name."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from hotrow.errors import InvalidArgumentError, PermissionDeniedError
from hotrow.serving.config.row_options import RowOptions
from hotrow.store.access import StoreAccess

CLUSTER = "redis+cluster://a:6379,b:7000"


@pytest.mark.parametrize("hosts", ["", "a,b", "a:6379, b:7000", "a,b:7000,c"])
def test_a_store_may_be_named_whose_hosts_are_allowed(hosts: str) -> None:
    RowOptions(hosts=hosts).check_named(CLUSTER, "m/1/manifest.json")


@pytest.mark.parametrize(("hosts", "other"), [("a", "b:7000"), ("a,b:7001", "b:7000"), ("c", "a:")])
def test_any_other_store_is_refused(hosts: str, other: str) -> None:
    with pytest.raises(PermissionDeniedError, match=f"{other}.* is not in --store_hosts {hosts}"):
        RowOptions(hosts=hosts).check_named(CLUSTER, "m/1/manifest.json")


def test_files_and_unix_sockets_have_no_host() -> None:
    for url in ("file:///srv/rows", "redis+unix:///run/redis"):
        RowOptions(hosts="a").check_named(url, "m/1/manifest.json")


def test_a_store_without_tls_is_refused_when_certificates_are_given(tmp_path: Path) -> None:
    authority = tmp_path / "ca.cert"
    authority.write_text("a certificate")
    options = RowOptions(access=StoreAccess(ca_file=str(authority)))
    options.check_named("rediss://a", "m/1/manifest.json")
    with pytest.raises(PermissionDeniedError, match="without TLS, but --store_ca"):
        options.check_named("redis://a", "m/1/manifest.json")


def test_at_least_one_read_is_allowed() -> None:
    with pytest.raises(InvalidArgumentError, match="--store_max_reads 0"):
        RowOptions(max_reads=0)
    with pytest.raises(InvalidArgumentError, match="--cache_warm_up_rows_per_second 0"):
        RowOptions(warm_up_rows_per_second=0)


@pytest.mark.parametrize(
    ("device", "gpu"), [("cpu", None), ("gpu", 0), ("gpu:0", 0), ("gpu:12", 12), ("auto", 0)]
)
def test_a_device_of_the_cache_is_a_gpu_or_none(device: str, gpu: int | None) -> None:
    assert RowOptions(cache_device=device, cache_bytes=1000).gpu == gpu


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"cache_device": "cuda"}, "--cache_device cuda; legal: cpu, gpu, gpu:N, auto"),
        ({"cache_device": "gpu:"}, "--cache_device gpu:; legal"),
        ({"cache_device": "gpu"}, "--cache_device=gpu without --cache_bytes or --cache_rows"),
        ({"cache_device": "auto", "cache_rows": 9}, "--cache_rows needs --gpu_cache_bytes"),
        ({"gpu_cache_bytes": 9}, "--gpu_cache_bytes 9 without --cache_device=gpu"),
        ({"gpu_cache_bytes": -1}, "--gpu_cache_bytes -1: must be 0"),
    ],
)
def test_a_device_without_what_it_needs_is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidArgumentError, match=re.escape(message)):
        RowOptions(**options)
