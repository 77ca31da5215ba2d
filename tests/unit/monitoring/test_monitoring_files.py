"""The files of docker/ for Prometheus and Grafana: their own tools read them, and names exist.

Grafana's linter of dashboards is a Go program that neither Debian nor PyPI has; its rules that
matter here are tests below.
"""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from hotrow.serving.monitoring.metric_help import HELP
from hotrow.trainer.online.admin.metrics import METRICS, Kind
from hotrow.trainer.online.admin.port import METRICS_PATH

ROOT = Path(__file__).resolve().parents[3]
DOCKER = ROOT / "docker"
ALERTS = DOCKER / "alerts.yaml"
EXAMPLES = Path(__file__).parent / "alerts_test.yaml"
DASHBOARDS = sorted((DOCKER / "grafana" / "dashboards").glob("*.json"))
DOCS = ROOT / "docs" / "online_operating.md"

# Of Prometheus itself.
OWN = {"up", "ALERTS"}


def promtool(*arguments: str | Path) -> None:
    """Runs promtool, which must accept what it is given."""
    done = subprocess.run(["promtool", *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def load(path: Path) -> Any:
    return yaml.safe_load(path.read_text())


def alerts() -> list[dict[str, Any]]:
    return [rule for group in load(ALERTS)["groups"] for rule in group["rules"]]


def panels() -> list[tuple[str, dict[str, Any]]]:
    """Returns the panels of all dashboards, with the names of their files."""
    return [
        (path.name, panel)
        for path in DASHBOARDS
        for panel in json.loads(path.read_text())["panels"]
        if panel["type"] != "row"
    ]


def expressions() -> Iterator[str]:
    """Yields the queries of all panels and annotations, as Grafana sends them."""
    for _, panel in panels():
        for target in panel["targets"]:
            yield target["expr"]
    for path in DASHBOARDS:
        for annotation in json.loads(path.read_text())["annotations"]["list"]:
            yield annotation["expr"]


def sent(expression: str) -> str:
    """Returns a query with Grafana's variables replaced."""
    return expression.replace("$__rate_interval", "1m").replace("$model", ".*")


def names_in(expression: str) -> set[str]:
    """Returns the metrics of a query: names with our prefix, and Prometheus' own."""
    text = re.sub(r'"[^"]*"', "", expression)
    return set(re.findall(r"\b(?:hotrow_\w+|up|ALERTS)\b", text))


def known_names() -> set[str]:
    """Returns the names on the pages of servers and trainers, and those of their histograms."""
    histograms = {metric.full_name for metric in METRICS if metric.kind is Kind.HISTOGRAM}
    histograms |= {name for name in HELP if name.endswith(("_seconds", "_microseconds"))}
    names = {metric.full_name for metric in METRICS} | set(HELP) | OWN
    return names | {f"{name}_{part}" for name in histograms for part in ("bucket", "sum", "count")}


def test_promtool_accepts_the_configuration_and_the_alerts() -> None:
    promtool("check", "config", "--syntax-only", DOCKER / "prometheus.yaml")
    promtool("check", "rules", ALERTS)


def test_each_alert_fires_and_is_quiet_as_its_examples_say() -> None:
    promtool("test", "rules", EXAMPLES)
    fires, quiet = set(), set()
    for example in load(EXAMPLES)["tests"]:
        for case in example["alert_rule_test"]:
            (fires if case.get("exp_alerts") else quiet).add(case["alertname"])
    names = {alert["alert"] for alert in alerts()}
    assert fires == quiet == names


def test_promtool_parses_every_query_of_a_dashboard(tmp_path: Path) -> None:
    rules = [
        {"record": f"panel:{number}", "expr": sent(expression)}
        for number, expression in enumerate(expressions())
    ]
    assert rules
    (tmp_path / "rules.yaml").write_text(
        yaml.safe_dump({"groups": [{"name": "a", "rules": rules}]})
    )
    promtool("check", "rules", tmp_path / "rules.yaml")


@pytest.mark.parametrize(
    "expressions",
    [
        pytest.param([alert["expr"] for alert in alerts()], id="alerts"),
        pytest.param(list(expressions()), id="dashboards"),
    ],
)
def test_every_metric_of_a_query_exists(expressions: list[str]) -> None:
    used = {expression: names_in(expression) for expression in expressions}
    assert [expression for expression, names in used.items() if not names] == []
    assert set.union(*used.values()) - known_names() == set()


def test_every_alert_says_how_urgent_it_is_and_has_its_own_section_in_the_docs() -> None:
    page = DOCS.read_text()
    sections = re.findall(r"^### (Hotrow\w+)\n\n(.+)\n\n\S", page, re.MULTILINE)
    written = [
        (
            alert["alert"],
            f"`{alert['labels']['severity']}`, when `{alert['expr']}`"
            + (f" for {alert['for']}." if "for" in alert else "."),
        )
        for alert in alerts()
    ]
    assert sections == written
    for alert in alerts():
        assert alert["labels"]["severity"] in ("page", "ticket")
        anchor = alert["alert"].lower()
        assert alert["annotations"]["runbook"] == f"docs/online_operating.md#{anchor}"
        assert alert["annotations"]["summary"]


def test_panels_have_titles_legends_and_a_chosen_source() -> None:
    assert panels()
    for name, panel in panels():
        assert panel["title"], name
        assert panel["fieldConfig"]["defaults"]["unit"], panel["title"]
        for target in panel["targets"]:
            assert target["datasource"]["uid"] == panel["datasource"]["uid"] == "${source}"
            many = panel["type"] == "timeseries" and len(panel["targets"]) > 1
            assert target["legendFormat"] or not many, panel["title"]
            # A fixed range would be too short for some intervals of scraping.
            assert re.search(r"\[(?!\$__rate_interval\])", target["expr"]) is None, panel["title"]


def test_panels_do_not_overlap_and_have_ids_of_their_own() -> None:
    for path in DASHBOARDS:
        content = json.loads(path.read_text())
        ids = [panel["id"] for panel in content["panels"]]
        assert len(ids) == len(set(ids))
        taken = set()
        for panel in content["panels"]:
            at = panel["gridPos"]
            assert at["x"] + at["w"] <= 24, panel["title"]
            for x in range(at["x"], at["x"] + at["w"]):
                for y in range(at["y"], at["y"] + at["h"]):
                    assert (x, y) not in taken, panel["title"]
                    taken.add((x, y))


def test_counters_are_shown_as_rates() -> None:
    counters = {metric.full_name for metric in METRICS if metric.kind is Kind.COUNTER}
    counters |= {name for name in HELP if name.endswith("_total")}
    for expression in [*expressions(), *(alert["expr"] for alert in alerts())]:
        for name in names_in(expression) & counters:
            assert re.search(rf"(rate|increase)\({name}\b", expression), expression


def test_grafana_and_prometheus_find_each_other_and_their_files() -> None:
    services = load(DOCKER / "compose.yaml")["services"]
    mounted = {
        target: source
        for name in ("prometheus", "grafana")
        for source, target, *_ in (volume.split(":") for volume in services[name]["volumes"])
    }
    configured = load(DOCKER / "prometheus.yaml")
    assert [mounted[path] for path in configured["rule_files"]] == ["./alerts.yaml"]
    provisioned = DOCKER / "grafana" / "provisioning"
    assert mounted["/etc/grafana/provisioning"] == "./grafana/provisioning"
    (provider,) = load(provisioned / "dashboards" / "hotrow.yaml")["providers"]
    assert mounted[provider["options"]["path"]] == "./grafana/dashboards"
    (source,) = load(provisioned / "datasources" / "prometheus.yaml")["datasources"]
    host, port = source["url"].removeprefix("http://").split(":")
    assert services[host]["ports"] == [f"{port}:{port}"]


def test_prometheus_scrapes_the_pages_that_servers_and_trainers_have() -> None:
    from hotrow.serving.monitoring.prometheus import DEFAULT_PATH

    jobs = load(DOCKER / "prometheus.yaml")["scrape_configs"]
    services = load(DOCKER / "compose.yaml")["services"]
    assert {job["job_name"]: job["metrics_path"] for job in jobs} == {
        "hotrow": DEFAULT_PATH,
        "hotrow-trainer": METRICS_PATH,
    }
    for job in jobs:
        for target in job["static_configs"][0]["targets"]:
            assert target.split(":")[0] in services
