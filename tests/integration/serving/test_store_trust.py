"""Whom the password of a store reaches."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import pytest
from documented_acl import acl_rule
from integration.serving.cut_servers import CACHE, looks, metrics
from integration.serving.marked_rows import MarkedModel, cut_of
from integration.serving.server_processes import data_plane_of
from integration.serving.trained_run import export

from hotrow.store.access import StoreAccess

PASSWORD = "s3cret"


def test_a_store_that_only_the_manifest_names_gets_no_password_unless_its_host_is_allowed(
    trained: Path,
    redis_servers: Any,
    start_server: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("HOTROW_STORE_PASSWORD", PASSWORD)
    redis = redis_servers.standalone(password=PASSWORD)
    export(trained, tmp_path / "models", "m", f"--store={redis.url}")
    base = tmp_path / "models" / "m"
    refused = start_server("m", base, "--store_hosts=redis.prod", "--max_num_load_retries=0")
    assert refused.wait_exit() == 255
    assert f"{redis.address} is not in --store_hosts redis.prod" in refused.log[-1]
    for flags in ([f"--store_hosts=redis.prod,{redis.address}"], ["--store_hosts=127.0.0.1"]):
        start_server("m", base, *flags).wait_ready()
    given = start_server("m", base, "--store_hosts=redis.prod", f"--store={redis.url}")
    given.wait_ready()


def test_the_executable_does_not_inherit_the_password(
    trained: Path,
    redis_servers: Any,
    start_server: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("HOTROW_STORE_PASSWORD", PASSWORD)
    redis = redis_servers.standalone(password=PASSWORD)
    export(trained, tmp_path / "models", "m", f"--store={redis.url}")
    server = start_server("m", tmp_path / "models" / "m")
    server.wait_ready()
    environment = Path(f"/proc/{data_plane_of(server)}/environ").read_bytes()
    assert b"LD_LIBRARY_PATH=" in environment
    assert PASSWORD.encode() not in environment


def test_a_server_with_the_readers_rights_alone_serves_and_follows_cuts(
    redis_servers: Any, start_server: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOTROW_STORE_PASSWORD", "sesame")
    rules = [acl_rule("hotrow-export"), acl_rule("hotrow-serve")]
    redis = redis_servers.standalone(password="sesame", users=rules)
    access = StoreAccess("hotrow-export", "sesame")
    model = MarkedModel(tmp_path / "models", redis.url, access=access)
    with contextlib.closing(model):
        server = start_server("m", model.path, *CACHE, "--store_user=hotrow-serve")
        server.wait_ready()
        assert cut_of(server) == 0
        for number in (1, 2):
            cut = model.write(number)
            model.wait_until_noted(cut)
            assert cut_of(server) == number
        model.fold_taken(undo_cuts=0)
        assert cut_of(server) == 2
        with redis.client() as admin:
            assert len(admin.client_list(_type="pubsub")) == 1, "it waits for announcements"
        assert server.terminate() == 0
        assert model.noted() == [], "it has released its lease"
    with redis.client() as admin:
        assert admin.acl_log() == [], "nothing was refused on the way"


def test_a_server_that_may_not_subscribe_says_so_once_and_polls(
    redis_servers: Any, start_server: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOTROW_STORE_PASSWORD", "sesame")
    rules = [acl_rule("hotrow-serve").replace("&hotrow:{hr}:*", "")]
    redis = redis_servers.standalone(password="sesame", users=rules)
    model = MarkedModel(tmp_path / "models", redis.url, access=StoreAccess(password="sesame"))
    with contextlib.closing(model):
        server = start_server(
            "m", model.path, *CACHE, "--store_user=hotrow-serve", metrics(tmp_path)
        )
        server.wait_ready()
        server.wait_for_log("cuts are found by polling alone")
        for number in (1, 2):
            model.wait_until_noted(model.write(number))
            assert cut_of(server) == number
        assert sum("by polling alone" in line for line in server.log) == 1
        assert looks(server, "push") == 0
        assert looks(server, "poll") > 0
