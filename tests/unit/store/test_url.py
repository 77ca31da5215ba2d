"""URLs of stores."""

from __future__ import annotations

import pytest

from hotrow.errors import InvalidArgumentError
from hotrow.store.url import StoreKind, StoreUrl, parse_store_url

A, B = ("a", 6379), ("b", 7000)


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("file:///data/rows", {"kind": StoreKind.FILE, "path": "/data/rows"}),
        ("file:///data/a@b:c", {"kind": StoreKind.FILE, "path": "/data/a@b:c"}),
        ("redis://a", {"hosts": (A,)}),
        ("redis://a/", {"hosts": (A,)}),
        ("REDIS://a", {"hosts": (A,)}),
        ("redis://b:7000/3", {"hosts": (B,), "database": 3}),
        ("redis://eve@a", {"hosts": (A,), "username": "eve"}),
        ("redis://e%40x@a", {"hosts": (A,), "username": "e@x"}),
        ("redis://[::1]", {"hosts": (("::1", 6379),)}),
        ("redis://[fe80::1]:7000/1", {"hosts": (("fe80::1", 7000),), "database": 1}),
        ("rediss://a", {"hosts": (A,), "tls": True}),
        ("redis+unix:///run/r.sock", {"path": "/run/r.sock"}),
        ("redis+unix:///run/a@b.sock?db=2", {"path": "/run/a@b.sock", "database": 2}),
        ("redis+unix://eve@/run/r.sock", {"path": "/run/r.sock", "username": "eve"}),
        ("redis+cluster://a,b:7000", {"kind": StoreKind.CLUSTER, "hosts": (A, B)}),
        ("redis+cluster://[::1]:1,a", {"kind": StoreKind.CLUSTER, "hosts": (("::1", 1), A)}),
        ("rediss+cluster://eve@a", {"kind": "cluster", "tls": True, "hosts": (A,)}),
        (
            "redis+sentinel://a,b:7000/rows",
            {"kind": "sentinel", "hosts": (("a", 26379), B), "service": "rows"},
        ),
        (
            "rediss+sentinel://a:1/rows/4",
            {"kind": "sentinel", "tls": True, "hosts": (("a", 1),), "database": 4},
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_url_has_these_parts(text: str, parts: dict[str, object]) -> None:
    url = parse_store_url("--store", text)
    assert parts.items() <= url.__dict__.items()
    assert str(url) == text.replace("REDIS", "redis")
    if "kind" not in parts:
        assert url.kind == StoreKind.STANDALONE


def test_a_url_can_be_read_from_its_own_text() -> None:
    url = parse_store_url("--store", "rediss+sentinel://eve@a,[::1]:3/rows/4")
    assert parse_store_url("--store", str(url)) == url
    assert isinstance(url, StoreUrl)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "'': no URL of a store; legal: file:///DIR, redis://"),
        ("rows", "'rows': no URL of a store; legal"),
        ("file:rows", "'file:rows': no URL of a store"),
        ("reddis://a", "reddis://...: no URL of a store (did you mean 'redis'?)"),
        ("rediss+clutser://a", "(did you mean 'rediss+cluster'?)"),
        ("file://rows", "file://rows: the path must be absolute (file:///DIR)"),
        ("file:///", "the path must be absolute"),
        ("redis://", "the host '' is not HOST or HOST:PORT (empty)"),
        ("redis://::1", "the host '::1' is not HOST or HOST:PORT (an IPv6 address stands in"),
        ("redis://a:0", "port 0: must be 1 to 65535"),
        ("redis://a:99999", "port 99999: must be 1 to 65535"),
        ("redis://a:x", "the host 'a:x' is not HOST"),
        ("redis://a/x", "database 'x': must be a number from 0"),
        ("redis://a/-1", "database '-1': must be a number from 0"),
        ("redis://a/0/1", "the path must be the number of a database"),
        ("redis://a?db=1", "no '?' goes here"),
        ("redis://a,b", "several hosts; redis+cluster:// leads to a cluster"),
        ("rediss://a,b", "several hosts; rediss+cluster:// leads to a cluster"),
        ("redis+unix://a/run/r", "the path of the socket must be absolute"),
        ("redis+unix://", "the path of the socket must be absolute"),
        ("redis+unix:///run/r?dbs=1", "unknown parameter 'dbs' (did you mean 'db'?); legal: db"),
        ("redis+cluster://a,,b", "the host '' is not HOST"),
        ("redis+cluster://a/1", "a cluster has only database 0; leave the path out"),
        ("redis+sentinel://a", "the name of the service is missing"),
        ("redis+sentinel://a/", "the name of the service is missing"),
        ("redis+sentinel://a/rows/x", "database 'x'"),
    ],
)
def test_what_is_no_url_is_refused_with_the_legal_form(text: str, message: str) -> None:
    with pytest.raises(InvalidArgumentError) as refused:
        parse_store_url("--store", text)
    assert str(refused.value).startswith("--store ")
    assert message in str(refused.value)


@pytest.mark.parametrize(
    "text",
    [
        "redis://eve:sesame@a",
        "redis://:sesame@a:1/2",
        "rediss+cluster://eve:ses@me/sesame@a,b",
        "redis://eve:sesame?@a",
        "redis+unix://:sesame@/run/r.sock",
        "redis+sentinel://:sesame@a/rows",
        "redis:eve:sesame@a",
        "reddis://eve:sesame@a",
    ],
)
def test_a_password_in_a_url_is_refused_and_not_repeated(text: str) -> None:
    with pytest.raises(InvalidArgumentError) as refused:
        parse_store_url("--store", text)
    if text.startswith(("redis://", "redis+", "rediss+")):
        assert "set HOTROW_STORE_PASSWORD, or give --store_password_file" in str(refused.value)
    assert "sesame" not in str(refused.value)
    assert "ses@me" not in str(refused.value)
