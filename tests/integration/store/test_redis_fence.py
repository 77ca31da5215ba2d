"""Rows of shards that went back in time fail; the others are read, at the cost of before."""

from __future__ import annotations

import struct

import numpy as np
import pytest
from integration.store.native_reads import all_states, reader_of, started
from rows_in_redis import VERSION

UNAVAILABLE, DATA_LOSS = 14, 15


@pytest.fixture
def redis_and_rows(redis_servers):
    return started(redis_servers)


def set_marks(server, stored, version, shards=None):
    with server.client() as client:
        for shard, marker in enumerate(stored.markers):
            if shards is None or shard in shards:
                client.hset(marker, "wm", struct.pack("<Q", version))


def test_watermarks_are_read_once_over_a_connection(redis_and_rows):
    server, stored = redis_and_rows
    reader = reader_of(stored, server)

    def commands():
        (node,) = reader.statistics()["nodes"].values()
        return node["commands"]

    stored.check_all_read(reader, 0)
    assert commands() == 1
    reader.set_fence(VERSION)
    stored.check_all_read(reader, 1)
    assert commands() == 2 + stored.shards
    for seed in range(2, 6):
        stored.check_all_read(reader, seed)
    assert commands() == 6 + stored.shards
    set_marks(server, stored, VERSION + 1)
    reader.set_fence(VERSION + 1)
    stored.check_all_read(reader, 6)
    assert commands() == 7 + 2 * stored.shards


def test_rows_of_shards_that_are_behind_fail_and_those_of_others_do_not(redis_and_rows):
    server, stored = redis_and_rows
    reader = reader_of(stored, server)
    set_marks(server, stored, VERSION + 1, range(8))
    reader.set_fence(VERSION + 1)
    requests = stored.asked()
    answers, code, message = reader.read(requests, 10.0)
    assert code == UNAVAILABLE
    assert "the store went back in time" in message
    failed = stored.check(requests, answers, allowed_failures=len(requests[0][1]))
    assert 0 < failed < len(requests[0][1])
    set_marks(server, stored, VERSION + 1)
    stored.check_all_read(reader)


def test_a_server_that_is_started_again_with_an_earlier_state_is_noticed_by_the_first_read(
    redis_and_rows,
):
    server, stored = redis_and_rows
    snapshot = server.snapshot()
    set_marks(server, stored, VERSION + 1)
    reader = reader_of(stored, server)
    reader.set_fence(VERSION + 1)
    stored.check_all_read(reader)
    server.go_back(snapshot)
    everything = list(enumerate(stored.keys))
    answers, code, message = reader.read(everything, 10.0)
    assert (all_states(answers), code) == ({2}, UNAVAILABLE)
    assert "went back in time" in message
    reader.set_fence(VERSION)
    stored.check_all_read(reader)


def test_a_shard_without_its_marker_has_lost_its_rows(redis_and_rows):
    server, stored = redis_and_rows
    reader = reader_of(stored, server)
    reader.set_fence(1)
    with server.client() as client:
        client.delete(*stored.markers)
    answers, code, message = reader.read([(0, stored.keys[0])], 10.0)
    assert (all_states(answers), code) == ({2}, DATA_LOSS)
    assert "the store has lost rows" in message
    assert len(np.concatenate([states for _, _, states in answers])) == len(stored.keys[0])
