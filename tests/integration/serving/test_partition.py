"""A server that is cut off from its store for longer than its lease, while exports go on."""

from __future__ import annotations

import contextlib
import shutil
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from integration.serving.cut_servers import CACHE
from integration.serving.marked_rows import MarkedModel, ask, cut_of
from network_partition import Partition
from waiting import wait_until

from hotrow.store.generations import Generations
from hotrow.store.readers import readers, users
from hotrow.store.spec import State

LEASE_SECONDS = 30.0


@pytest.mark.slow
def test_what_it_reads_is_there_when_the_partition_ends(
    redis_servers: Any, start_server: Any, tmp_path: Path
) -> None:
    redis = redis_servers.standalone()
    model = MarkedModel(tmp_path / "models", redis.url)
    between = Partition(redis.port)
    with contextlib.closing(model), contextlib.closing(between):
        # Pinned to the first version, as by a label.
        pinned = tmp_path / "pinned" / "m"
        shutil.copytree(model.path / "1", pinned / "1")
        url = f"--store=redis://127.0.0.1:{between.port}"
        server = start_server("m", pinned, *CACHE, url)
        server.wait_ready()
        assert cut_of(server) == 0
        records, name = model.store.records, model.generation.generation
        (before,) = readers(records, name)
        between.cut()
        cut_at = time.monotonic()
        assert ask(server, np.arange(200, dtype=np.int64)).failure, "rows outside of the cache"
        wait_until(lambda: users(records, name) == [], seconds=LEASE_SECONDS + 10)
        assert time.monotonic() - cut_at > LEASE_SECONDS / 2
        # Two generations are kept, and none of these three is the server's.
        for cut in (1, 2, 3):
            model.export(cut)
        assert Generations(records).get(name).state is State.COMPLETE
        between.heal()
        wait_until(lambda: [r.holder for r in readers(records, name)] == [before.holder])
        wait_until(lambda: not ask(server, np.arange(200, dtype=np.int64)).failure)
        assert cut_of(server) == 0
