"""The format of a data file, guessed from its name."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from hotrow.errors import InvalidArgumentError

Format = Literal["criteo", "csv", "libsvm", "parquet"]

_BY_SUFFIX: dict[str, Format] = {
    ".csv": "csv",
    ".data": "csv",
    ".parquet": "parquet",
    ".tsv": "criteo",
    ".txt": "criteo",
    ".libsvm": "libsvm",
    ".svm": "libsvm",
}
_COMPRESSED = (".gz", ".zst", ".bz2")


def guess_format(path: str | Path) -> Format:
    """Returns the format that a file's name implies; a suffix of compression is ignored.

    Raises:
        InvalidArgumentError: the name implies no format.
    """
    name = Path(path)
    if name.suffix in _COMPRESSED:
        name = name.with_suffix("")
    found = _BY_SUFFIX.get(name.suffix)
    if found is None:
        raise InvalidArgumentError(
            f"the format of {path} is not known from its name; give --format criteo, csv, "
            f"libsvm or parquet (known endings: {', '.join(_BY_SUFFIX)})"
        )
    return found
