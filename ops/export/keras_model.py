"""Exports a Keras model of the user's own: `hotrow.export_model`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import keras
import tensorflow as tf

from hotrow.errors import InvalidArgumentError
from hotrow.manifest import Manifest
from hotrow.ops.anchor import AnchorVariable
from hotrow.ops.embedding import DistributedEmbedding
from hotrow.ops.export.row_options import RowOptions
from hotrow.ops.export.signatures import Signature
from hotrow.ops.export.version import write_version
from hotrow.store.access import StoreAccess, read_access
from hotrow.store.spec import RowType

ONE_INPUT = "inputs"
ONE_OUTPUT = "outputs"


def export_model(
    model: keras.Model,
    base: str | Path,
    name: str,
    *,
    inputs: Mapping[str, tf.TensorSpec] | tf.TensorSpec | None = None,
    version: int | None = None,
    store: str | None = None,
    access: StoreAccess | None = None,
    row_type: RowType | None = None,
    top: int | None = None,
    standalone: bool = False,
) -> Path:
    """Writes a Keras model as a version that `platform serve` serves; returns its directory.

    The signature `serving_default` takes the model's inputs by name (`inputs` if there is one)
    and returns its outputs by name (`outputs` if there is one).

    Args:
        model: built, with any number of `DistributedEmbedding` layers anywhere in it.
        base: folder of all models; the version is `<base>/<name>/<version>`.
        name: of the model, the name that requests use.
        inputs: dense tensors that the model is called with, by name, or the only one. None: those
            of a functional model.
        version: positive; None: one more than the newest.
        store: URL of a store, see `platform export --help`; None: one inside the version directory.
        access: how the store lets us in; None: with the password in HOTROW_STORE_PASSWORD, if any.
        row_type: "float32", "bfloat16", "float16" or "int8"; None: as each table has its weights.
        top: only so many rows of each table, the most frequent ones; None: all.
        standalone: rows in the graph's variables, stock TensorFlow ops only.

    Raises:
        InvalidArgumentError: no inputs given for a model that is not functional; see
            `write_version` for the rest.
    """
    specs, pack = _inputs_of(model, inputs)

    def call(named: dict[str, Any]) -> dict[str, Any]:
        outputs = model(pack(named), training=False)
        if isinstance(outputs, Mapping):
            return dict(outputs)
        if isinstance(outputs, list | tuple):
            return {f"output_{i}": output for i, output in enumerate(outputs)}
        return {ONE_OUTPUT: outputs}

    layers = [x for x in model._flatten_layers() if isinstance(x, DistributedEmbedding)]
    dense = [v.value for v in model.variables if not isinstance(v, AnchorVariable)]
    iterations = getattr(getattr(model, "optimizer", None), "iterations", 0)
    directory: Path
    _manifest: Manifest
    directory, _manifest = write_version(
        layers,
        dense,
        {"serving_default": Signature(call, specs)},
        Path(base),
        name,
        step=int(iterations),
        version=version,
        rows=RowOptions(store=store, access=access or read_access(), row_type=row_type, top=top),
        standalone=standalone,
    )
    return directory


def _inputs_of(
    model: keras.Model, inputs: Mapping[str, tf.TensorSpec] | tf.TensorSpec | None
) -> tuple[dict[str, tf.TensorSpec], Callable[[dict[str, Any]], Any]]:
    """Returns the named specs, and how a dictionary by name becomes the model's argument."""
    if inputs is None:
        structure = getattr(model, "input", None)
        if structure is None:
            raise InvalidArgumentError(
                f"export_model: {model.name!r} is not a functional model; give inputs="
                "{name: tf.TensorSpec(...)}, or one TensorSpec, as it is called with"
            )
        if isinstance(structure, Mapping):
            return {n: tf.TensorSpec(x.shape, x.dtype) for n, x in structure.items()}, dict
        if isinstance(structure, list | tuple):
            names = [x.name for x in structure]
            specs = {x.name: tf.TensorSpec(x.shape, x.dtype) for x in structure}
            return specs, lambda named: [named[n] for n in names]
        inputs = tf.TensorSpec(structure.shape, structure.dtype)
    if isinstance(inputs, Mapping):
        return dict(inputs), dict
    return {ONE_INPUT: inputs}, lambda named: named[ONE_INPUT]
