"""Colors on a terminal; plain text elsewhere, and where NO_COLOR is set."""

from __future__ import annotations

import os
from typing import TextIO

import click


def colored(text: str, color: str, stream: TextIO) -> str:
    """Returns the text in a color of `click.style`, if the stream shows colors."""
    plain = os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb"
    return text if plain or not stream.isatty() else click.style(text, fg=color)
