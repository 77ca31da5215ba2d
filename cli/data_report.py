"""How `platform data` reports: lines for people, or JSON."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import click


def report(
    values: dict[str, Any], json_file: str | None, lines: Callable[[], Iterator[str]]
) -> None:
    """Prints the lines for people, or JSON to standard output instead, or JSON to a file too."""
    text = json.dumps(values, indent=2)
    if json_file == "-":
        click.echo(text)
        return
    for line in lines():
        click.echo(line)
    if json_file is not None:
        Path(json_file).write_text(text + "\n", encoding="utf-8")
