"""Writes docs/tfserving_compatibility.md."""

from __future__ import annotations

from integration.serving.contract import SECTIONS
from integration.serving.contract.page import PATH, render

PATH.write_text(render(SECTIONS))
