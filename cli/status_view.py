"""How `platform status` looks on a terminal."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from hotrow.cli.inspection_text import size
from hotrow.cli.status_report import Report, counted

_MOST_CUTS = 5
_NONE = "-"


def console() -> Console:
    """Returns a console that prints texts as they are: reasons and addresses may have brackets."""
    return Console(markup=False, emoji=False, highlight=False)


def draw(report: Report) -> RenderableType:
    """Returns all parts, and first what is wrong."""
    return Group(
        _problems(report),
        _part("trainer", report.trainer, _trainer),
        _part("store", report.store, _store),
        _panel("servers", _servers(report.servers)),
    )


def _problems(report: Report) -> RenderableType:
    at = time.strftime("%H:%M:%S", time.localtime(report.time))
    if not report.problems:
        return Text(f"{at} all is well", "green")
    lines = Text(f"{at} {counted(len(report.problems), 'problem')}\n", "bold red")
    for problem in report.problems:
        lines.append(
            f"  {problem.part}: {problem.text}\n", "red" if problem.unanswered else "yellow"
        )
    lines.rstrip()
    return lines


def _part(
    name: str,
    part: dict[str, Any] | None,
    body: Callable[[dict[str, Any]], RenderableType],
) -> RenderableType:
    if part is None:
        return _panel(name, Text("not known: give RUN_DIR or HOST:PORT, or --store and --model"))
    if not part["answers"]:
        return _panel(name, Text(part["why"], "red"))
    return _panel(name, body(part))


def _panel(name: str, body: RenderableType) -> Panel:
    return Panel(body, title=name, title_align="left")


def _trainer(part: dict[str, Any]) -> RenderableType:
    stream, publishing = part["stream"], part["publishing"]
    facts = _facts()
    state = part["state"].replace("_", " ")
    reason = f": {part['reason']}" if part["reason"] else ""
    facts.add_row(
        "state",
        Text(
            f"{state}{reason}, for {_seconds(part['time'] - part['since'])}",
            "green" if part["state"] == "training" else "yellow",
        ),
    )
    facts.add_row(
        "run",
        f"{part['run']} at step {part['step']:,}, "
        f"{counted(part['ranks'], 'rank')}, {part['address']}",
    )
    facts.add_row(
        "events",
        f"{stream['events']:,} trained, {stream['events_per_second']:,.1f}/s, "
        f"{_count(stream.get('lag_events'))} waiting, "
        f"{_seconds(stream.get('lag_seconds'))} behind, trainer {part['busy']:.0%} busy",
    )
    counts = ("bad", "late", "joined", "expired", "early")
    facts.add_row("", ", ".join(f"{name} {stream[name]:,}" for name in counts))
    facts.add_row(
        "checkpoint",
        f"step {part['checkpoints']['step']:,}, {_seconds(part['checkpoint_age_seconds'])} ago, "
        f"{counted(part['checkpoints']['failures'], 'failure')} since",
    )
    if not part["model"]:
        facts.add_row("publishing", "nothing: online.models is not set")
    else:
        _add_publishing(facts, part, publishing)
    return Group(facts, _progressive(part["progressive"]))


def _add_publishing(facts: Table, part: dict[str, Any], publishing: dict[str, Any]) -> None:
    facts.add_row("last cut", _last_cut(publishing.get("last"), part["cut_age_seconds"]))
    facts.add_row(
        "publishing",
        f"{publishing['cuts']:,} cuts, {publishing['rows']:,} rows, "
        f"{publishing['coalesced_rows']:,} coalesced, {publishing['waiting_rows']:,} waiting, "
        f"{counted(publishing['failures'], 'failure')} in a row, "
        f"{counted(publishing['base_exports'], 'full export')}",
    )
    gate = publishing["gate"]
    closed = gate["closed"]
    facts.add_row(
        "gate",
        Text(f"closed: {gate['reason']}" if closed else "open", "yellow" if closed else ""),
    )
    if "canary" in publishing:
        canary = publishing["canary"]
        named = {
            "mean score": "mean_score",
            "AUC": "auc",
            "change": "change",
            "worst difference of a server": "server_difference",
        }
        known = [f"{text} {canary[key]:.6g}" for text, key in named.items() if key in canary]
        facts.add_row("canary", ", ".join(known))


def _last_cut(cut: dict[str, Any] | None, age: float | None) -> str:
    if cut is None:
        return "none"
    return (
        f"{cut['version']} at step {cut['step']:,}, {cut['rows']:,} rows, {cut['removed']:,} "
        f"removed, {size(cut['bytes'])}, {_seconds(age)} ago, staged in "
        f"{_seconds(cut['stage_seconds'])}"
    )


def _progressive(scored: list[dict[str, Any]]) -> RenderableType:
    table = _table("scores before training", "events", "AUC", "log loss", "calibration")
    for model in scored:
        for which, name in (("window", "last window"), ("total", "whole run")):
            metrics = model.get(which)
            if metrics is None:
                continue
            table.add_row(
                f"{model['model']}, {name}",
                f"{metrics['events']:,}",
                *(_number(metrics.get(key)) for key in ("auc", "logloss", "calibration")),
            )
    return table


def _store(part: dict[str, Any]) -> RenderableType:
    parts: list[RenderableType] = [Text(f"{part['url']}, model {part['model']}")]
    nodes = _table("node", "memory", "of", "shards")
    for node in part["nodes"]:
        limit = "no limit" if node["limit_bytes"] is None else size(node["limit_bytes"])
        nodes.add_row(node["address"], size(node["used_bytes"]), limit, str(node["shards"]))
    if part["nodes"]:
        parts.append(nodes)
    generations = _table(
        "version", "state", "step", "rows exported", "bytes", "readers", "unfolded cuts"
    )
    for found in part["generations"]:
        unfolded = f"{found['unfolded_cuts']} ({size(found['unfolded_bytes'])})"
        generations.add_row(
            str(found["version"]),
            "live" if found["live"] else found["state"],
            f"{found['step']:,}",
            f"{found['rows']:,}",
            _NONE if found["bytes"] is None else size(found["bytes"]),
            str(len(found["readers"])),
            unfolded,
        )
    parts.append(generations)
    cuts = _table("cut", "age", "step", "rows", "removed", "bytes", "state")
    live = next((found for found in part["generations"] if found["live"]), None)
    for cut in live["cuts"][:_MOST_CUTS] if live else []:
        cuts.add_row(
            cut["cut"],
            _seconds(cut["age_seconds"]),
            f"{cut['step']:,}",
            f"{cut['rows']:,}",
            f"{cut['removed']:,}",
            size(cut["bytes"]),
            "folded" if cut["folded"] else "staged",
        )
    if live and live["cuts"]:
        parts.append(cuts)
        if (more := len(live["cuts"]) - _MOST_CUTS) > 0:
            parts.append(Text(f"and {more} older cuts", "dim"))
    return Group(*parts)


def _servers(servers: list[dict[str, Any]]) -> RenderableType:
    if not servers:
        return Text("none has a lease on the live version; name others with --server HOST:PORT")
    table = _table(
        "server", "cut", "behind", "hit rate", "p99 of requests", "requests/s", "errors", "state"
    )
    for server in servers:
        page = server["page"] or {"answers": False, "why": "no page of metrics (--server)"}
        answers = page["answers"]
        table.add_row(
            server["name"],
            server["cut"] or _NONE,
            _behind(server),
            _share(page["hit_rate"]) if answers else _NONE,
            _seconds(page["p99_seconds"]) if answers else _NONE,
            _number(page["requests_per_second"]) if answers else _NONE,
            f"{page['errors']:,}" if answers else _NONE,
            _state(page),
        )
    return table


def _state(page: dict[str, Any]) -> Text:
    if not page["answers"]:
        return Text(page["why"], "red" if "--server)" not in page["why"] else "dim")
    wrong = [name for name in ("silent", "stale", "refuses", "store_is_behind") if page[name]]
    return Text(", ".join(wrong).replace("_", " "), "yellow") if wrong else Text("well", "green")


def _behind(server: dict[str, Any]) -> str:
    cuts = server["behind_cuts"]
    if cuts is None:
        return _NONE
    return "0" if not cuts else f"{counted(cuts, 'cut')}, {_seconds(server['behind_seconds'])}"


def _facts() -> Table:
    facts = Table.grid(padding=(0, 2))
    facts.add_column(style="dim", no_wrap=True)
    facts.add_column()
    return facts


def _table(first: str, *others: str) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    table.add_column(first, overflow="fold")
    for name in others:
        table.add_column(name, overflow="fold")
    return table


def _seconds(value: float | None) -> str:
    """Returns a duration of some microseconds or many days in a few characters."""
    if value is None:
        return _NONE
    if value < 1:
        return f"{value * 1e3:.3g} ms"
    for limit, unit, name in ((120, 1, "s"), (7200, 60, "min"), (172_800, 3600, "h")):
        if value < limit:
            return f"{value / unit:.1f} {name}"
    return f"{value / 86_400:.1f} days"


def _number(value: float | None) -> str:
    return _NONE if value is None else f"{value:,.5g}"


def _count(value: int | None) -> str:
    return _NONE if value is None else f"{value:,}"


def _share(value: float | None) -> str:
    return _NONE if value is None else f"{value:.1%}"
