"""The module hotrow_native_readers, for benchmarks of what the product's binding lacks."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType

import click

sys.path.append(str(Path(__file__).resolve().parents[1] / "tests"))

from native_build import path_of
from native_readers import FILE, load


def built_readers() -> ModuleType:
    """Returns the module. Absent: the program ends and says what to run."""
    try:
        return load(path_of(FILE))
    except FileNotFoundError as err:
        raise click.ClickException(str(err)) from err
