"""A real trainer with an admin service, a server that follows it, and an operator's commands."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from integration.online.online_run import Work, append_events, click_rows
from integration.serving.cut_servers import CACHE, metrics
from waiting import wait_until

from hotrow.admin.run_address import ADMIN_FILE
from hotrow.cli.main import main


class Operated:
    """A trainer with an admin service, a server, and the commands of an operator."""

    def __init__(self, work: Work, server: Any, capsys: Any) -> None:
        self.work = work
        self.server = server
        self.run_dir = str(work.folder / "run")
        self._capsys = capsys
        self._sent = 0

    def send(self, count: int) -> int:
        """Sends events; returns how many there are in all."""
        rows = click_rows(count, seed=self._sent, first=1.7e9 + self._sent * 0.01)
        append_events(self.work.folder / "events.jsonl", rows)
        self._sent += count
        return self._sent

    def command(self, *arguments: str) -> int:
        """Runs `platform`."""
        self._capsys.readouterr()
        return main([*arguments])

    def status(self) -> tuple[int, dict[str, Any]]:
        """Returns exit code and JSON of `platform status`."""
        code = self.command("status", self.run_dir, "--json", "--seconds", "0.2")
        return code, json.loads(self._capsys.readouterr().out)

    def wait(self, condition: Any) -> dict[str, Any]:
        """Waits until the JSON meets a condition; returns it."""
        seen: list[dict[str, Any]] = []

        def met() -> bool:
            seen.append(self.status()[1])
            return bool(condition(seen[-1]))

        wait_until(met, lambda: (seen[-1], self.work.log()), 120)
        return seen[-1]

    def wait_until_trained(self, events: int) -> dict[str, Any]:
        """Waits until this many events are trained, and all servers show the newest cut."""

        def met(found: dict[str, Any]) -> bool:
            trainer = found["trainer"]
            if not trainer["answers"] or trainer["stream"]["events"] != events:
                return False
            last = trainer["publishing"].get("last", {})
            return (
                trainer["stream"].get("lag_events") == 0
                and last.get("step") == trainer["step"]
                and [server["cut"] for server in found["servers"]] == [last["version"]]
            )

        return self.wait(met)

    def scores(self) -> np.ndarray:
        """Returns what the server answers to fixed rows."""
        rows = click_rows(32, seed=5)
        reply = self.server.predict(
            price=np.array([row["price"] for row in rows], np.float32),
            user=np.array([row["user"].encode() for row in rows]),
            item=np.array([row["item"].encode() for row in rows]),
        )
        return tf.make_ndarray(reply.outputs["scores"])


@pytest.fixture
def operated(
    tmp_path: Path, redis_server: Any, start_server: Any, capsys: Any
) -> Iterator[Operated]:
    (tmp_path / "events.jsonl").touch()
    work = Work(tmp_path, redis_server.url, f"file:{tmp_path}/events.jsonl")
    work.configure("  admin: 127.0.0.1:0\n  window_seconds: 0.5\nexport: {undo_cuts: 200}\n")
    try:
        trainer = work.start()
        models = work.folder / "models" / "clicks"
        wait_until(lambda: (models / "1").exists(), work.log, 120)
        server = start_server("clicks", models, *CACHE, metrics(tmp_path))
        server.wait_ready()
        yield Operated(work, server, capsys)
        work.stop(trainer)
        assert not (work.folder / "run" / ADMIN_FILE).exists()
    finally:
        work.close()
