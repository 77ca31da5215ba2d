"""An operator watches, pauses, resumes and rolls back a real trainer, and servers follow."""

from __future__ import annotations

import urllib.request

import numpy as np
from integration.online.operated import Operated
from prometheus_client.parser import text_string_to_metric_families

from hotrow.trainer.online.admin.metrics import METRICS


def test_an_operator_watches_pauses_and_resumes(operated: Operated) -> None:
    first = operated.wait_until_trained(operated.send(640))
    assert first["problems"] == []
    trainer, store = first["trainer"], first["store"]
    assert (trainer["state"], trainer["model"], trainer["ranks"]) == ("training", "clicks", 1)
    online = next(m for m in trainer["progressive"] if m["model"] == "online")
    assert online["total"]["events"] == 640
    assert trainer["publishing"]["last"]["version"] == first["servers"][0]["cut"]
    exporter = store["exporter"]
    assert (exporter["trainer"], exporter["admin"]) == ("run", trainer["address"])
    assert first["servers"][0]["page"]["step"] == trainer["publishing"]["last"]["step"]

    with urllib.request.urlopen(f"http://{trainer['address']}/metrics", timeout=30) as reply:
        page = {f.name: f for f in text_string_to_metric_families(reply.read().decode())}
    assert page["hotrow_online_events"].samples[0].value == 640
    assert set(page) <= {metric.full_name.removesuffix("_total") for metric in METRICS}

    assert operated.command("pause", operated.run_dir, "--reason", "the store is moved") == 0
    operated.send(256)
    code, paused = operated.status()
    assert code == 3
    assert [problem["text"] for problem in paused["problems"]] == [
        "it is paused: the store is moved"
    ]
    found = operated.wait(lambda found: found["trainer"]["stream"]["events_per_second"] < 30)
    assert (found["trainer"]["state"], found["trainer"]["stream"]["events"]) == ("paused", 640)
    assert 0 < found["trainer"]["busy_seconds"] == paused["trainer"]["busy_seconds"]
    assert 0 < found["trainer"]["busy"] < 1
    assert operated.command("resume", operated.run_dir) == 0
    assert operated.wait_until_trained(896)["problems"] == []


def test_an_operator_rolls_back_and_opens_the_gate(operated: Operated) -> None:
    operated.wait_until_trained(operated.send(640))
    before = operated.scores()
    good = operated.status()[1]["servers"][0]["cut"]
    operated.wait_until_trained(operated.send(640))
    after = operated.scores()
    assert not np.array_equal(before, after)

    base = str(operated.work.folder / "models")
    assert operated.command("rollback", base, "--name", "clicks", "--to", good) == 0
    np.testing.assert_array_equal(operated.scores(), before)
    code, closed = operated.status()
    assert (code, closed["trainer"]["state"]) == (3, "gate_closed")
    cuts = closed["trainer"]["publishing"]["cuts"]

    total = operated.send(128)
    found = operated.wait(lambda found: found["trainer"]["stream"]["events"] == total)
    assert found["trainer"]["publishing"]["cuts"] == cuts
    np.testing.assert_array_equal(operated.scores(), before)

    assert operated.command("resume", operated.run_dir) == 0
    assert operated.wait_until_trained(total)["problems"] == []
    assert not np.array_equal(operated.scores(), before)
