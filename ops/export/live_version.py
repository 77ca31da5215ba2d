"""Which version a store calls live: the newest whose directory is there."""

from __future__ import annotations

from pathlib import Path

from hotrow.errors import HotrowError
from hotrow.manifest import read_manifest
from hotrow.store.generations import Generations
from hotrow.store.spec import State
from hotrow.version_layout import FILE_NAME


def point_to_existing(generations: Generations, model: str, folder: Path) -> None:
    """Makes the newest complete generation live whose version directory is there.

    It is live already, unless a version directory was removed by hand, or an export was killed
    between the rename of its version and the change of the store. Without this, the next export
    would keep the rows of the version that is gone, and delete those of one that serves.

    Args:
        generations: of the store; the caller holds the export lease of the model.
        model: name of the model.
        folder: of its versions. Nothing changes if the store has the rows of none of them.
    """
    there = set()
    for version in folder.glob("*"):
        if version.name.isdecimal():
            try:
                there.add(read_manifest(version / "assets" / FILE_NAME).generation)
            except HotrowError:
                continue  # standalone, or damaged
    found = [g for g in generations.all(model) if g.state is State.COMPLETE]
    existing = [g for g in found if g.generation in there]
    if existing and generations.model(model).live != existing[-1].generation:
        generations.make_live(existing[-1])
