"""A real Prometheus reads a trainer and a server, and has data for the dashboard and the alerts."""

from __future__ import annotations

import json
import subprocess
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from children import start_child
from free_ports import free_port
from integration.online.operated import Operated
from waiting import wait_until

DOCKER = Path(__file__).resolve().parents[3] / "docker"

# Nothing of this happens here: no request fails, and no server is compared by the canary.
EMPTY = {"Failed requests", "Canary: servers", "Canary: scores"}


class Prometheus:
    """A server with the configuration of docker/, but for addresses and intervals."""

    def __init__(self, folder: Path, targets: dict[str, str]) -> None:
        self.folder = folder
        self.port = free_port()
        config: Any = yaml.safe_load((DOCKER / "prometheus.yaml").read_text())
        config["global"] = {"scrape_interval": "1s", "evaluation_interval": "1s"}
        config["rule_files"] = [str(DOCKER / "alerts.yaml")]
        for job in config["scrape_configs"]:
            job["static_configs"] = [{"targets": [targets[job["job_name"]]]}]
        (folder / "prometheus.yaml").write_text(yaml.safe_dump(config))
        with (folder / "prometheus.log").open("w") as log:
            self.process = start_child(
                [
                    "prometheus",
                    f"--config.file={folder}/prometheus.yaml",
                    f"--storage.tsdb.path={folder}/prometheus",
                    f"--web.listen-address=127.0.0.1:{self.port}",
                ],
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        wait_until(self.is_ready, self.log, 60)

    def is_ready(self) -> bool:
        try:
            return bool(self.get("query", query="vector(1)"))
        except OSError:
            return False

    def get(self, path: str, **arguments: str) -> Any:
        """Returns the data of an answer of the API."""
        query = urllib.parse.urlencode(arguments)
        url = f"http://127.0.0.1:{self.port}/api/v1/{path}?{query}"
        with urllib.request.urlopen(url, timeout=30) as reply:
            return json.load(reply)["data"]

    def values(self, query: str) -> list[float]:
        """Returns the values of a query now, without labels."""
        return [float(found["value"][1]) for found in self.get("query", query=query)["result"]]

    def firing(self) -> set[str]:
        """Returns the names of the alerts that fire."""
        alerts = self.get("alerts")["alerts"]
        return {alert["labels"]["alertname"] for alert in alerts if alert["state"] == "firing"}

    def log(self) -> str:
        return (self.folder / "prometheus.log").read_text()

    def close(self) -> None:
        self.process.kill()
        self.process.wait()


@pytest.fixture
def prometheus(operated: Operated, tmp_path: Path) -> Iterator[Prometheus]:
    address = operated.wait_until_trained(operated.send(64))["trainer"]["address"]
    server = f"127.0.0.1:{operated.server.rest_port}"
    made = Prometheus(tmp_path, {"hotrow": server, "hotrow-trainer": address})
    yield made
    made.close()


def panels() -> Iterator[tuple[str, str]]:
    """Yields title and query of each line of each panel, as Grafana sends it."""
    dashboard = json.loads((DOCKER / "grafana" / "dashboards" / "online.json").read_text())
    for panel in dashboard["panels"]:
        for target in panel.get("targets", []):
            query = target["expr"].replace("$__rate_interval", "1m").replace("$model", ".*")
            yield panel["title"], query


def test_dashboard_and_alerts_have_data(operated: Operated, prometheus: Prometheus) -> None:
    wait_until(lambda: prometheus.values("sum(up)") == [2.0], prometheus.log, 60)

    def empty() -> set[str]:
        operated.scores()
        operated.send(64)
        filled = {title for title, query in panels() if prometheus.values(query)}
        return {title for title, _ in panels()} - filled

    wait_until(lambda: empty() <= EMPTY, empty, 120)
    assert prometheus.firing() == set()
    total = operated.send(64)
    operated.wait_until_trained(total)
    wait_until(
        lambda: prometheus.values("hotrow_online_events_total") == [total],
        lambda: prometheus.values("hotrow_online_events_total"),
        60,
    )

    good = operated.status()[1]["servers"][0]["cut"]
    operated.wait_until_trained(operated.send(640))
    base = str(operated.work.folder / "models")
    assert operated.command("rollback", base, "--name", "clicks", "--to", good) == 0
    wait_until(lambda: prometheus.firing() == {"HotrowGateClosed"}, prometheus.firing, 120)
    assert operated.command("resume", operated.run_dir) == 0
    wait_until(lambda: prometheus.firing() == set(), prometheus.firing, 120)
