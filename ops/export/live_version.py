"""Keeps the live version of a store the newest one whose directory exists."""

from __future__ import annotations

from pathlib import Path

from hotrow.errors import HotrowError
from hotrow.manifest import read_manifest
from hotrow.store.generations import Generations
from hotrow.store.spec import State
from hotrow.version_layout import FILE_NAME


def point_to_existing(generations: Generations, model: str, folder: Path) -> None:
    """Makes the newest complete generation live whose version directory exists.

    It is live already, unless a version directory was removed by hand, or an export was killed
    between the rename of its version and the update of the store. Without this call, the next
    export would keep the rows of the missing version, and delete rows that servers read.

    Args:
        generations: the store's generations; the caller holds the export lease of the model.
        model: the model's name.
        folder: folder of its versions. Nothing changes if the store has rows of none of them,
            or a record of one cannot be read.
    """
    there = set()
    for version in folder.glob("*"):
        if version.name.isdecimal():
            try:
                there.add(read_manifest(version / "assets" / FILE_NAME).generation)
            except HotrowError:
                continue  # standalone, or damaged
    listed, unreadable = generations.listed()
    if {bad.record.rpartition("/")[2] for bad in unreadable} & there:
        return  # it may be the newest: what is live is not known to be wrong
    found = [g for g in listed if g.model == model and g.state is State.COMPLETE]
    existing = [g for g in found if g.generation in there]
    if existing and generations.model(model).live != existing[-1].generation:
        generations.make_live(existing[-1], generations.next_epoch(model))
