"""The manifest of an exported version: assets/hotrow_manifest.json.

The native lookup reads `generation`, `store` and `tables`; users and `platform inspect` read the
rest.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import pydantic

from hotrow.errors import DataLossError, NotFoundError
from hotrow.norms import Norm
from hotrow.spec import FeatureConfig, TableConfig
from hotrow.store.spec import RowType
from hotrow.version import __version__


class _Part(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(frozen=True, extra="ignore")


class ManifestTable(_Part):
    """A table of the version.

    Attributes:
        name: the table's name in the graph and in the store.
        dim: weights of a row, D.
        dtype: how weights are stored.
        rows: number of rows in the store.
        digest: digest of keys and stored rows in any order: 32 hex digits.
        default_value: value of every weight in the row that an unknown key reads.
    """

    name: str
    dim: int
    dtype: RowType = "float32"
    rows: int
    digest: str
    default_value: float = 0.0


class ManifestFeature(_Part):
    """A feature of the lookup: its table and the pooling of its rows."""

    name: str
    table: str
    combiner: str | None


class Manifest(_Part):
    """The contents of a version.

    Attributes:
        format: number of this file's format.
        model: the model's name. version: its number.
        step: number of training steps so far.
        generation: key prefix of its rows in the store.
        store: URL of the store; `file:rows` is relative to the version directory; "" when the rows
            are in the graph's variables (standalone).
        schema_hash: SHA-256 of tables and features, equal for versions that can share rows.
        created_ms: time of the export, in milliseconds since 1970; 0: unknown.
        checkpoint: name of the exported checkpoint; "" for a Keras model.
        norms: sizes of its tables and dense weights, which the next export is compared with.
    """

    format: Literal[1] = 1
    hotrow_version: str = __version__
    model: str
    version: int
    step: int
    generation: str
    store: str
    tables: tuple[ManifestTable, ...]
    features: tuple[ManifestFeature, ...]
    schema_hash: str
    created_ms: int = 0
    checkpoint: str = ""
    norms: tuple[Norm, ...] = ()

    @property
    def rows(self) -> int:
        """Number of rows in all tables."""
        return sum(table.rows for table in self.tables)

    def to_json(self) -> str:
        """Returns the text of the file."""
        return self.model_dump_json(indent=1) + "\n"


def schema_hash(tables: Sequence[TableConfig], features: Sequence[FeatureConfig]) -> str:
    """Returns the SHA-256 of all that shared rows must agree on: names, widths, types, pooling."""
    schema: dict[str, Any] = {
        "tables": [[t.name, t.embedding_dim, "float32"] for t in tables],
        "features": [[f.name, f.table.name, f.resolved_combiner] for f in features],
    }
    text = json.dumps(schema, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def read_manifest(path: Path) -> Manifest:
    """Reads a manifest file.

    Raises:
        NotFoundError: the file does not exist.
        DataLossError: the file is damaged or has another format.
    """
    try:
        return Manifest.model_validate_json(path.read_bytes())
    except FileNotFoundError as err:
        raise NotFoundError(f"{path} does not exist; is this a version that Hotrow wrote?") from err
    except (OSError, pydantic.ValidationError) as err:
        reason = str(err).splitlines()[0]
        raise DataLossError(f"{path} is damaged or of another format: {reason}") from err
