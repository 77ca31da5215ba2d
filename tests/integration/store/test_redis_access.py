"""Which users a store admits, with which rights, and the errors that others get."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import numpy as np
import pytest
import redis
from documented_acl import acl_rule
from integration.store.random_generations import (
    digests_of,
    new_generation,
    random_rows,
    versions,
    written,
)
from native_readers import native_readers

from hotrow.errors import (
    FailedPreconditionError,
    InvalidArgumentError,
    NotFoundError,
    PermissionDeniedError,
    ResourceExhaustedError,
    UnavailableError,
)
from hotrow.store.access import StoreAccess
from hotrow.store.generations import Generations
from hotrow.store.readers import readers
from hotrow.store.readers import use as take_lease
from hotrow.store.redis.functions import LIBRARY, MARK, PUT, READER_SOURCE, SWAP, SWAP_LEASE
from hotrow.store.redis.layout import PagedTable, markers_of
from hotrow.store.redis.records import KEY, READERS_KEY


def use(store: Any) -> None:
    """Does all that an exporter does."""
    store.check_safe_for_rows()
    generation, keys, rows = written(store, rows=500)
    assert store.records.swap("a", None, "1")
    assert store.records.names("") == ["a", "number"]
    assert store.records.now_ms() > 0
    assert store.put(generation, 0, keys, rows, versions(500, 2**60)) == 500
    assert store.read(generation, 0, keys)[2].all()
    assert (store.digests(generation, 0) == digests_of(keys, rows)).all()
    assert store.missing_markers(generation) == []
    store.stage(generation, 2**60, {(3, 0): b"block"})
    assert store.staged(generation, 2**60, [(3, 0)]) == [b"block"]
    store.unstage(generation, 2**60, [(3, 0)])
    store.set_watermarks(generation, 2**60, [3])
    assert store.watermarks(generation)[3] == 2**60
    store.delete_rows(generation)
    assert not store.digests(generation, 0).any()


@pytest.mark.parametrize("options", [{"unix_socket": True}, {}], ids=["unix socket", "tcp"])
def test_a_store_behind_a_socket_and_with_a_number(
    redis_servers: Any, open_redis: Any, options: dict[str, Any]
) -> None:
    server = redis_servers.standalone(password="sesame", **options)
    url = server.url + ("?db=3" if options else "/3")
    store = open_redis(url, StoreAccess(password="sesame"))
    use(store)
    (node,) = store.topology()["nodes"]
    assert node["address"] == (f"unix:{server.socket}" if options else server.address)
    assert node["slots"] == [[0, 16383]]
    with server.client(3) as client:
        assert client.dbsize() == 1
    assert server.call("DBSIZE") == 0


def test_tls_with_certificates_on_both_sides(redis_servers: Any, open_redis: Any) -> None:
    server = redis_servers.standalone(tls=True, tls_clients=True)
    home = server.certificates.folder
    files = {name: str(home / name) for name in ("ca.cert", "client.cert", "client.key")}
    access = StoreAccess("", "", *files.values())
    use(open_redis(server.url, access))
    with pytest.raises(UnavailableError, match=r"certificate.*authority, --store_ca FILE"):
        open_redis(server.url)
    with pytest.raises(UnavailableError, match=r"127.0.0.1:\d+: "):
        open_redis(server.url, StoreAccess(ca_file=files["ca.cert"]), 0.1).records.get("a")
    with pytest.raises(UnavailableError, match=r"For TLS: rediss://"):
        open_redis(server.url.replace("rediss", "redis"))


def test_tls_where_there_is_none_is_reported(
    redis_server: Any, open_redis: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hotrow.store.redis.connections.ANSWER_SECONDS", 0.5)
    with pytest.raises(UnavailableError, match=r"does it speak TLS there\? Without: redis://"):
        open_redis(redis_server.url.replace("redis", "rediss"))


@pytest.mark.parametrize("password", ["", "wrong"])
def test_a_missing_or_wrong_password_is_reported_and_not_repeated(
    redis_servers: Any, open_redis: Any, password: str
) -> None:
    server = redis_servers.standalone(password="sesame", users=["eve on >sesame ~* +@all"])
    for url in (server.url, server.url.replace("//", "//eve@")):
        with pytest.raises(PermissionDeniedError, match="set HOTROW_STORE_PASSWORD") as refused:
            open_redis(url, StoreAccess(password=password))
        assert str(refused.value).startswith(f"{url}: refuses ")
        assert "wrong" not in str(refused.value).removesuffix("is disabled.")[:60]
    use(open_redis(server.url.replace("//", "//eve@"), StoreAccess(password="sesame")))


def test_a_user_without_a_password_is_let_in_by_name(redis_servers: Any, open_redis: Any) -> None:
    server = redis_servers.standalone(password="admin", users=["eve on nopass ~* +@all"])
    store = open_redis(server.url.replace("//", "//eve@"))
    use(store)
    generation, keys, _ = written(store)
    native = native_readers().RedisReader(
        generation.model_dump_json(), json.dumps(store.topology()), username="eve"
    )
    _, code, why = native.read([(0, keys)])
    assert (code, why) == (0, "")
    native.close()


def test_the_acl_rules_of_the_documentation_are_enough(redis_servers: Any, open_redis: Any) -> None:
    rules = [acl_rule("hotrow-export"), acl_rule("hotrow-serve")]
    server = redis_servers.standalone(password="admin", users=rules)
    at = {
        name: server.url.replace("//", f"//{name}@") for name in ("hotrow-export", "hotrow-serve")
    }
    access = StoreAccess(password="sesame")
    exporter = open_redis(at["hotrow-export"], access)
    use(exporter)
    generation, keys, rows = written(exporter)
    reader = open_redis(at["hotrow-serve"], access)
    assert reader.read(generation, 0, keys)[2].all()
    assert reader.missing_markers(generation) == []
    with pytest.raises(PermissionDeniedError, match="ACL rule"):
        reader.records.swap("cut/forged", None, "{}")
    exporter.stage(generation, 2**60, {(3, 0): b"block"})
    assert reader.staged(generation, 2**60, [(3, 0)]) == [b"block"]
    generations = Generations(exporter.records)
    begun = generations.begin(model="m", version=1, step=1, source="", schema_hash="", tables=[])
    name = generations.complete(begun, []).generation
    with take_lease(reader.records, name, "server") as lease:
        lease.note_cut(2**60)
        assert [r.cut for r in readers(exporter.records, name)] == [2**60]
    native = native_readers().RedisReader(
        generation.model_dump_json(),
        json.dumps(reader.topology()),
        username="hotrow-serve",
        password="sesame",
    )
    strangers = random_rows(500, seed=9)[0]
    ((_, _, states),), code, _ = native.read([(0, np.concatenate([keys, strangers]))])
    assert code == 0
    assert states.tolist() == [1] * len(keys) + [0] * 500
    native.close()
    with pytest.raises(PermissionDeniedError, match=r"docs/redis.md has the ACL rules"):
        reader.write(generation, 0, keys, rows)
    with pytest.raises(PermissionDeniedError, match="ACL rule"):
        reader.put(generation, 0, keys, rows, versions(len(keys), 2**60))
    with pytest.raises(PermissionDeniedError, match="ACL rule"):
        reader.unstage(generation, 2**60, [(3, 0)])
    with pytest.raises(PermissionDeniedError, match="ACL rule"):
        reader.delete_rows(generation)
    with pytest.raises(PermissionDeniedError, match="ACL rule"):
        exporter.client.call(0, "FLUSHALL")


def test_the_user_of_servers_can_forge_nothing(redis_servers: Any, open_redis: Any) -> None:
    rules = [acl_rule("hotrow-export"), acl_rule("hotrow-serve")]
    server = redis_servers.standalone(password="admin", users=rules)
    url = server.url.replace("//", "//hotrow-export@")
    exporter = open_redis(url, StoreAccess(password="sesame"))
    generation, _, _ = written(exporter)
    assert exporter.records.swap("model/m", None, '{"live": "g"}')
    markers, _ = markers_of(generation)
    page = PagedTable(generation, 0).name(markers[0], 0)
    with server.client() as admin:
        before = {key: admin.dump(key) for key in admin.scan_iter()}
        functions = admin.function_list()
    attempts: list[tuple[Any, ...]] = [
        ("HSET", KEY, "cut/forged", "{}"),
        ("HDEL", KEY, "model/m"),
        ("DEL", KEY),
        ("SET", page, "rows"),
        ("MSET", page, "rows"),
        ("SETRANGE", page, 0, "rows"),
        ("DEL", page),
        ("UNLINK", page),
        ("HSET", markers[0], "wm", "12345678"),
        ("FCALL", SWAP, 1, KEY, "model/m", '={"live": "g"}', "={}"),
        ("FCALL", SWAP, 1, READERS_KEY, "lease/g/x", "", "={}"),
        ("FCALL", SWAP_LEASE, 1, KEY, "lease/g/x", "", "={}"),
        ("FCALL", PUT, 2, markers[0], page, 16, "0123456789abcdef"),
        ("FCALL", MARK, 1, markers[0], "12345678"),
        ("EVAL", "return redis.call('HSET', KEYS[1], 'a', 'b')", 1, KEY),
        ("FUNCTION", "LOAD", "REPLACE", READER_SOURCE),
        ("FUNCTION", "DELETE", LIBRARY),
        ("FUNCTION", "FLUSH"),
        ("RENAME", READERS_KEY, KEY),
        ("COPY", READERS_KEY, KEY),
        ("RESTORE", page, 0, "x"),
        ("ACL", "SETUSER", "hotrow-serve", "allcommands"),
        ("CONFIG", "SET", "maxmemory", "1"),
        ("FLUSHALL",),
    ]
    with redis.Redis(
        host="127.0.0.1", port=server.port, username="hotrow-serve", password="sesame"
    ) as reader:
        for attempt in attempts:
            with pytest.raises(redis.exceptions.NoPermissionError):
                reader.execute_command(*attempt)
        for name in ("model/m", "cut/forged"):
            with pytest.raises(redis.ResponseError, match="not a lease of a reader"):
                reader.execute_command("FCALL", SWAP_LEASE, 1, READERS_KEY, name, "", "={}")
    with server.client() as admin:
        assert {key: admin.dump(key) for key in admin.scan_iter()} == before
        assert admin.function_list() == functions


def test_a_store_in_which_older_exporters_alone_were(redis_servers: Any, open_redis: Any) -> None:
    rules = [acl_rule("hotrow-export"), acl_rule("hotrow-serve")]
    server = redis_servers.standalone(users=rules)
    store = open_redis(server.url)
    generations = Generations(store.records)
    begun = generations.begin(model="m", version=1, step=1, source="", schema_hash="", tables=[])
    name = generations.complete(begun, []).generation
    server.call("FUNCTION", "DELETE", "hotrow_readers_1")
    reader = open_redis(server.url.replace("//", "//hotrow-serve@"), StoreAccess(password="sesame"))
    with pytest.raises(FailedPreconditionError, match="has no function hotrow_readers_1_swap; an"):
        take_lease(reader.records, name, "server")
    # A user with all rights, as until now: where the older exporter looks for it.
    with take_lease(open_redis(server.url).records, name, "server") as lease:
        lease.note_cut(7)
        with server.client() as client:
            assert client.hexists(KEY, f"lease/{name}/server")
        assert [r.cut for r in readers(store.records, name)] == [7]
        assert open_redis(server.url).records.swap("a", None, "1"), "a newer exporter comes"
        lease.note_cut(8)
        with server.client() as client:
            assert client.hexists(READERS_KEY, f"lease/{name}/server")
        assert [r.cut for r in readers(store.records, name)] == [8]
        with take_lease(reader.records, name, "another"):
            assert [r.cut for r in readers(store.records, name)] == [0, 8]


def test_the_name_of_the_readers_function_goes_with_its_content() -> None:
    digest = hashlib.sha256(READER_SOURCE.encode()).hexdigest()
    assert (SWAP_LEASE, digest[:16]) == ("hotrow_readers_1_swap", "a18f8b4289f90056"), (
        "count its number up, and the ACL in docs/redis.md with it"
    )


@pytest.mark.parametrize("policy", ["allkeys-lru", "volatile-ttl"])
def test_a_server_that_may_drop_rows_is_refused(
    redis_servers: Any, open_redis: Any, policy: str
) -> None:
    server = redis_servers.standalone(maxmemory="100mb", policy=policy)
    store = open_redis(server.url)
    with pytest.raises(FailedPreconditionError, match=f"maxmemory-policy {policy}"):
        store.check_safe_for_rows()
    server.call("CONFIG", "SET", "maxmemory", "0")
    store.check_safe_for_rows()
    server.call("CONFIG", "SET", "maxmemory", "1gb")
    server.call("CONFIG", "SET", "maxmemory-policy", "noeviction")
    store.check_safe_for_rows()


def test_a_full_store_refuses_rows_and_can_still_be_cleared(
    redis_servers: Any, open_redis: Any
) -> None:
    server = redis_servers.standalone(maxmemory="30mb")
    store = open_redis(server.url)
    first, keys, rows = written(store)
    assert store.records.swap("a", None, "1")
    assert store.put(first, 0, keys, rows, versions(len(keys), 2**60)) == len(keys)
    big = new_generation(store, rows=400_000)
    with pytest.raises(ResourceExhaustedError, match=r"is full .*; raise maxmemory, add nodes"):
        store.write(big, 0, *random_rows(400_000))
    server.call("CONFIG", "SET", "maxmemory", "5mb")
    with pytest.raises(ResourceExhaustedError, match="is full"):
        store.put(first, 0, keys, rows, versions(len(keys), 2**61))
    assert store.records.swap("a", "1", "2")
    assert store.read(first, 0, keys)[2].all()
    store.delete_rows(big)
    server.call("CONFIG", "SET", "maxmemory", "30mb")
    assert store.put(first, 0, keys, rows, versions(len(keys), 2**62)) == len(keys)


def test_a_url_of_another_kind_than_the_server_is_reported(
    redis_server: Any, redis_cluster: Any, open_redis: Any
) -> None:
    with pytest.raises(InvalidArgumentError, match="stands alone is redis://"):
        open_redis(redis_server.url.replace("redis:", "redis+cluster:"))
    with pytest.raises(InvalidArgumentError, match=r"a node of a cluster; give redis\+cluster://"):
        open_redis(f"redis://{redis_cluster.nodes[0].address}")
    with pytest.raises(InvalidArgumentError, match="has no database 99"):
        open_redis(f"{redis_server.url}/99")


def test_a_service_that_sentinels_do_not_know_is_named(redis_servers: Any, open_redis: Any) -> None:
    sentinel = redis_servers.sentinel()
    with pytest.raises(NotFoundError, match="the sentinels know no service 'cols'"):
        open_redis(sentinel.url.replace("/rows", "/cols"))


def test_a_server_that_is_away_is_named_after_the_time_that_was_given(
    redis_servers: Any, open_redis: Any
) -> None:
    server = redis_servers.standalone()
    store = open_redis(server.url, patience_seconds=0.3)
    generation, keys, rows = written(store)
    server.kill()
    for call in (
        lambda: store.records.get("a"),
        lambda: store.write(generation, 0, keys, rows),
        lambda: store.digests(generation, 0),
        lambda: open_redis(server.url),
    ):
        with pytest.raises(UnavailableError, match=rf"^{server.url}: .*refused"):
            call()
    server.restart()
    assert store.records.get("a") is None
    assert not store.digests(generation, 0).any()
    assert np.array_equal(store.missing_markers(generation), range(16))
