"""The dense weights of a cut: a TensorFlow checkpoint as one blob (docs/formats.md, "Cuts")."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path

from hotrow.errors import DataLossError

PREFIX = "variables"
"""Of the checkpoint's files: as of those in the directory `variables` of a SavedModel."""

_INDEX, _DATA = f"{PREFIX}.index", f"{PREFIX}.data-00000-of-00001"


def pack(prefix: Path) -> bytes:
    """Returns a checkpoint of one shard as a tar archive; equal checkpoints give equal bytes.

    Args:
        prefix: prefix of its files `<prefix>.index` and `<prefix>.data-00000-of-00001`.

    Raises:
        OSError: a file cannot be read.
    """
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w", format=tarfile.USTAR_FORMAT) as tar:
        for name in (_INDEX, _DATA):
            content = prefix.with_name(prefix.name + name.removeprefix(PREFIX)).read_bytes()
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            tar.addfile(entry, io.BytesIO(content))
    return archive.getvalue()


def unpack(blob: bytes, folder: Path) -> Path:
    """Writes the files of a blob that `pack` returned; returns the prefix of the checkpoint.

    Args:
        blob: not empty; an empty blob means a model without dense weights, and has no checkpoint.
        folder: where to write the two files.

    Raises:
        DataLossError: the blob has other contents than the two files.
        OSError: the disk is full or refuses.
    """
    try:
        with tarfile.open(fileobj=io.BytesIO(blob), mode="r:") as tar:
            entries = tar.getmembers()
            found = [(e.name, e.isreg(), e.sparse is None) for e in entries]
            if found != [(_INDEX, True, True), (_DATA, True, True)]:
                raise DataLossError(
                    f"dense weights of a cut are the files {_INDEX} and {_DATA}, not "
                    f"{', '.join(entry.name for entry in entries)[:200] or 'none'}"
                )
            for entry in entries:
                content = tar.extractfile(entry)
                assert content is not None  # it is a plain file
                # Not `extract`, which may create links, owners and paths that the archive chooses.
                (folder / entry.name).write_bytes(content.read())
    except tarfile.TarError as err:
        raise DataLossError(f"dense weights of a cut are no tar archive: {err}") from err
    return folder / PREFIX
