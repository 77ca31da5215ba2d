"""Signatures of an exported graph: functions over named inputs, and how TensorFlow writes them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from keyword import iskeyword
from pathlib import Path
from typing import Any, Literal

import tensorflow as tf
from tensorflow.core.protobuf import saved_model_pb2

from hotrow.ops.lookup import SAMPLE_COUNTS

# TensorFlow renames other arguments; it uses `self` itself, and `input_0` is ours.
_ARGUMENT = re.compile(r"(?!self$|input_\d+$)[A-Za-z][A-Za-z0-9_]*")

_REPORT = "hotrow/report/"
# Prefix of a signature's name in the SavedModel: a signature that also returns the counts of
# samples (hotrow.ops.lookup.SAMPLE_COUNTS). Clients do not see it; the server sends the sums.

Method = Literal["predict", "classify", "regress"]


@dataclass(frozen=True)
class Signature:
    """One signature.

    Attributes:
        function: takes a dictionary of the inputs by name and returns one of the outputs by name.
            TensorFlow traces it when the version is written.
        inputs: dtype and shape of each named input.
        method: the method of TensorFlow Serving that it answers.
    """

    function: Callable[[dict[str, Any]], dict[str, Any]]
    inputs: Mapping[str, tf.TensorSpec]
    method: Method = "predict"

    def trace(self) -> Any:
        """Returns the concrete function; see `argument_names` for its arguments."""
        names = argument_names(self.inputs)

        def named(**arguments: Any) -> dict[str, Any]:
            return self.function({name: arguments[names[name]] for name in self.inputs})

        specs = {
            names[name]: tf.TensorSpec(spec.shape, spec.dtype, names[name])
            for name, spec in self.inputs.items()
        }
        return tf.function(named, autograph=False).get_concrete_function(**specs)


def argument_names(inputs: Iterable[str]) -> dict[str, str]:
    """Returns the argument of the graph's function for each named input.

    The argument has the input's name where TensorFlow accepts that as an argument name; otherwise
    it is `input_0` and so on. Signatures keep the names of the inputs; only the functions that
    `tf.saved_model.load` returns use these arguments.
    """
    names = list(inputs)
    lower = [name.lower() for name in names]
    return {
        name: name
        if _ARGUMENT.fullmatch(name) and not iskeyword(name) and lower.count(name.lower()) == 1
        else f"input_{i}"
        for i, name in enumerate(names)
    }


def complete_signatures(directory: Path, signatures: Mapping[str, Signature]) -> None:
    """Sets the methods and the input names of a SavedModel's signatures.

    `tf.saved_model.save` marks every signature as Predict. It also cannot name an input after a
    column whose name is no Python identifier.
    """
    path = directory / "saved_model.pb"
    saved = saved_model_pb2.SavedModel()
    saved.ParseFromString(path.read_bytes())
    definitions = saved.meta_graphs[0].signature_def
    for key, signature in signatures.items():
        definitions[key].method_name = f"tensorflow/serving/{signature.method}"
        names = argument_names(signature.inputs)
        inputs = definitions[key].inputs
        traced = {
            argument: type(inputs[argument]).FromString(inputs[argument].SerializeToString())
            for argument in names.values()
        }
        for argument in names.values():
            del inputs[argument]
        for name, argument in names.items():
            inputs[name].CopyFrom(traced[argument])
        outputs = definitions[key].outputs
        for counted in SAMPLE_COUNTS & outputs.keys():
            definitions[_REPORT + key].outputs[counted].CopyFrom(outputs[counted])
            del outputs[counted]
    path.write_bytes(saved.SerializeToString(deterministic=True))
