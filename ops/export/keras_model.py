"""Exports a Keras model: `hotrow.export_model` and `hotrow.export_changes`."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import keras

from hotrow.hold_bounds import MAX_HOLD_BYTES, MAX_HOLD_SECONDS, HoldBounds
from hotrow.lineage import Lineage, Start
from hotrow.manifest import Manifest
from hotrow.norms import Gates
from hotrow.ops.anchor import AnchorVariable
from hotrow.ops.embedding import DistributedEmbedding
from hotrow.ops.export.changes import WAIT_SECONDS, ExportedChanges, write_changes
from hotrow.ops.export.model_inputs import Spec, model_inputs
from hotrow.ops.export.row_options import RowOptions
from hotrow.ops.export.signatures import Signature
from hotrow.ops.export.version import write_version
from hotrow.store.access import StoreAccess, read_access
from hotrow.store.cuts import CutRecord
from hotrow.store.spec import RowType

ONE_OUTPUT = "outputs"


def export_model(
    model: keras.Model,
    base: str | Path,
    name: str,
    *,
    inputs: Mapping[str, Spec] | Spec | None = None,
    version: int | None = None,
    store: str | None = None,
    access: StoreAccess | None = None,
    row_type: RowType | None = None,
    top: int | None = None,
    standalone: bool = False,
    force: bool = False,
) -> Path:
    """Writes a Keras model as a version that `platform serve` serves; returns its directory.

    The signature `serving_default` takes the model's inputs by name (a single input is `inputs`)
    and returns its outputs by name (a single output is `outputs`). A ragged input `<name>` is two
    tensors: its values [N], and `<name>_row_splits`, int64 [B + 1].

    Args:
        model: a built model, with any number of `DistributedEmbedding` layers anywhere in it.
        base: folder of all models; the version is `<base>/<name>/<version>`.
        name: the model's name, which requests use.
        inputs: dense (`tf.TensorSpec`) or ragged (`tf.RaggedTensorSpec`) specs of the tensors that
            the model is called with, by name, or the only one. None: the inputs of a functional
            model.
        version: positive; None: one more than the newest.
        store: URL of a store, see `platform export --help`; None: a store in the version directory.
        access: credentials for the store; None: only the password in HOTROW_STORE_PASSWORD, if it
            is set.
        row_type: "float32", "bfloat16", "float16" or "int8"; None: the dtype of each table's
            weights.
        top: export at most this many rows of each table, the most frequent ones; None: all.
        standalone: put the rows into the graph's variables, with stock TensorFlow ops only.
        force: export also values that are not finite, and norms that jump.

    Raises:
        FailedPreconditionError: a value is not finite, or a norm is 10 times that of the version
            before.
        InvalidArgumentError: `inputs` is None and the model is not functional; see `write_version`
            for other causes.
        UnimplementedError: a sparse input.
    """
    specs, pack = model_inputs(model, inputs)

    def call(named: dict[str, Any]) -> dict[str, Any]:
        outputs = model(pack(named), training=False)
        if isinstance(outputs, Mapping):
            return dict(outputs)
        if isinstance(outputs, list | tuple):
            return {f"output_{i}": output for i, output in enumerate(outputs)}
        return {ONE_OUTPUT: outputs}

    parts = _Parts(model)
    directory: Path
    _manifest: Manifest
    directory, _manifest = write_version(
        parts.layers,
        parts.dense,
        {"serving_default": Signature(call, specs)},
        Path(base),
        name,
        step=parts.step,
        lineage=parts.lineage,
        version=version,
        rows=RowOptions(store=store, access=access or read_access(), row_type=row_type, top=top),
        standalone=standalone,
        gates=Gates(force=force),
    )
    return directory


def export_changes(
    model: keras.Model,
    base: str | Path,
    name: str,
    *,
    version: int | None = None,
    store: str | None = None,
    access: StoreAccess | None = None,
    wait_seconds: float = WAIT_SECONDS,
    committed: Callable[[CutRecord], None] = lambda cut: None,
    force: bool = False,
    undo_cuts: int = 1,
    max_hold_seconds: float | None = MAX_HOLD_SECONDS,
    max_hold_bytes: int | None = MAX_HOLD_BYTES,
) -> ExportedChanges:
    """Exports what training has changed in a model since its export to running servers.

    Created, updated and expired rows, and all dense weights, go to the store in which
    `export_model(..., store=URL)` put the rows. Servers of the version take them without a restart
    or a gap. Pass the model object that this process exported and then trained further. A model
    with loaded weights needs a full export first.

    Args:
        model: the model that was exported.
        base: folder of all models.
        name: the model's name.
        version: None: the newest.
        store: another URL of the version's store; None: the URL of the export.
        access: credentials for the store; None: only the password in HOTROW_STORE_PASSWORD, if it
            is set.
        wait_seconds: how long to wait until all servers have taken the changes.
        committed: called with the cut once servers can read it.
        force: export also values that are not finite, and norms that jump.
        undo_cuts: for how many of the newest calls the store keeps what they replace, so that
            `platform rollback` can bring it back.
        max_hold_seconds: for how long a reader that has not taken an export (a `hotrow.bind`, a
            server that hangs) keeps it from replacing earlier rows. Then the reader is overruled:
            it fails where rows have changed, until it binds again or takes the export. None: for
            any time.
        max_hold_bytes: the same bound in bytes of exports that wait; None: any number.

    Raises:
        HotrowError: see `write_changes`; servers then keep the rows and weights that they have.
    """
    parts = _Parts(model)
    return write_changes(
        parts.layers,
        parts.dense,
        Path(base),
        name,
        step=parts.step,
        lineage=parts.lineage,
        version=version,
        store=store,
        access=access or read_access(),
        wait_seconds=wait_seconds,
        committed=committed,
        gates=Gates(force=force),
        undo_cuts=undo_cuts,
        bounds=HoldBounds(max_hold_seconds, max_hold_bytes),
    )


class _Parts:
    """The parts of a model that an export needs.

    Attributes:
        layers: the layers with tables.
        dense: all other variables, in a fixed order.
        step: steps of the model's optimizer.
        lineage: lineage of its tables in this process; dense weights are always exported whole.
    """

    def __init__(self, model: keras.Model) -> None:
        self.layers = [x for x in model._flatten_layers() if isinstance(x, DistributedEmbedding)]
        self.dense = [v.value for v in model.variables if not isinstance(v, AnchorVariable)]
        self.step = int(getattr(getattr(model, "optimizer", None), "iterations", 0))
        histories = [t.history for layer in self.layers for t in layer.tables.values()]
        self.lineage = Lineage((Start(hashlib.sha256("".join(histories).encode()).hexdigest(), 0),))
