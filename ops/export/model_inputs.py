"""The inputs of a Keras model as named tensors of a signature. B samples, N values.

A ragged input `<name>` is two tensors: `<name>` with its N values, and `<name>_row_splits`,
int64 [B + 1].
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import keras
import tensorflow as tf

from hotrow.errors import InvalidArgumentError, UnimplementedError

ONE_INPUT = "inputs"
ROW_SPLITS = "_row_splits"

Spec: TypeAlias = tf.TensorSpec | tf.RaggedTensorSpec
Pack: TypeAlias = Callable[[dict[str, Any]], Any]


def model_inputs(
    model: keras.Model, inputs: Mapping[str, Spec] | Spec | None
) -> tuple[dict[str, tf.TensorSpec], Pack]:
    """Returns the named specs, and a function from a dictionary by name to the model's argument.

    Args:
        model: a built model.
        inputs: specs of its inputs, by name, or the only one; None: those of a functional model.

    Raises:
        InvalidArgumentError: `inputs` is None and the model is not functional, a ragged input is
            not [B, None], or two inputs have one name.
        UnimplementedError: a sparse input.
    """
    structure: Any = inputs
    if inputs is None:
        structure = getattr(model, "input", None)
        if structure is None:
            raise InvalidArgumentError(
                f"export_model: {model.name!r} is not a functional model; give inputs="
                "{name: tf.TensorSpec(...)}, or one TensorSpec, as it is called with "
                "(tf.RaggedTensorSpec for a ragged input)"
            )
    if isinstance(structure, Mapping):
        return _named({name: _spec_of(name, x) for name, x in structure.items()}, dict)
    if isinstance(structure, list | tuple):
        names = [x.name for x in structure]
        specs = {x.name: _spec_of(x.name, x) for x in structure}
        return _named(specs, lambda named: [named[n] for n in names])
    return _named({ONE_INPUT: _spec_of(ONE_INPUT, structure)}, lambda named: named[ONE_INPUT])


def _spec_of(name: str, given: Any) -> Spec:
    """Returns the spec of a KerasTensor; returns a spec unchanged."""
    if isinstance(given, tf.TensorSpec | tf.RaggedTensorSpec):
        return given
    if isinstance(given, tf.SparseTensorSpec) or getattr(given, "sparse", False):
        raise UnimplementedError(
            f"export_model: input {name!r} is sparse, which no signature takes; make it ragged, "
            "or dense with FeatureConfig(mask_value=...)"
        )
    if getattr(given, "ragged", False):
        return tf.RaggedTensorSpec(
            given.shape, given.dtype, ragged_rank=1, row_splits_dtype="int64"
        )
    return tf.TensorSpec(given.shape, given.dtype)


def _named(specs: Mapping[str, Spec], pack: Pack) -> tuple[dict[str, tf.TensorSpec], Pack]:
    flat: dict[str, tf.TensorSpec] = {}
    ragged = {name for name, spec in specs.items() if isinstance(spec, tf.RaggedTensorSpec)}
    for name, spec in specs.items():
        if name not in ragged:
            flat[name] = spec
            continue
        if spec.ragged_rank != 1 or spec.shape.rank != 2:
            raise InvalidArgumentError(
                f"export_model: input {name!r} is ragged of shape {spec.shape}; must be [B, None]"
            )
        if name + ROW_SPLITS in specs:
            raise InvalidArgumentError(
                f"export_model: the input {name + ROW_SPLITS!r} has the name of the row splits of "
                f"{name!r}; rename it"
            )
        flat[name] = tf.TensorSpec([None], spec.dtype)
        flat[name + ROW_SPLITS] = tf.TensorSpec([None], tf.int64)

    def packed(named: dict[str, Any]) -> Any:
        whole = {name: named[name] for name in specs}
        for name in ragged:
            splits = named[name + ROW_SPLITS]
            whole[name] = tf.RaggedTensor.from_row_splits(named[name], splits)
        return pack(whole)

    return flat, packed
