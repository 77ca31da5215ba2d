"""Writes the descriptors of TF Serving's API, out of the installed wheels, for protoc.

Messages that a server does not read (whole graphs) are left out, and so are files that only they
need; nodes and functions stay.

    python export_protos.py DESCRIPTORS [MODULE ...]

Each module, such as tensorflow.core.protobuf.config_pb2, adds its messages.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterable
from pathlib import Path
from types import ModuleType

# Importing TensorFlow takes seconds: this package has its folders and nothing else.
_found = importlib.util.find_spec("tensorflow")
if _found is None or _found.submodule_search_locations is None:
    sys.exit("TensorFlow is not installed; pip install tensorflow")
sys.modules["tensorflow"] = ModuleType("tensorflow")
sys.modules["tensorflow"].__path__ = list(_found.submodule_search_locations)

from google.protobuf import descriptor_pb2
from google.protobuf.descriptor import FileDescriptor
from tensorflow.core.framework import function_pb2
from tensorflow.core.protobuf import saver_pb2
from tensorflow_serving.apis import logging_pb2, model_service_pb2, prediction_service_pb2

# Messages of these files are read once a version or never: small code, which compiles faster.
COLD = (
    "tensorflow/core/framework/attr_value.proto",
    "tensorflow/core/framework/full_type.proto",
    "tensorflow/core/framework/function.proto",
    "tensorflow/core/framework/node_def.proto",
    "tensorflow/core/framework/op_def.proto",
    "tensorflow/core/protobuf/meta_graph.proto",
    "tensorflow/core/protobuf/saver.proto",
    "tensorflow/core/protobuf/struct.proto",
    "tensorflow_serving/apis/get_model_metadata.proto",
    "tensorflow_serving/apis/get_model_status.proto",
    "tensorflow_serving/apis/model_management.proto",
    "tensorflow_serving/apis/model_service.proto",
    "tensorflow_serving/apis/status.proto",
    "tensorflow_serving/config/file_system_storage_path_source.proto",
    "tensorflow_serving/config/log_collector_config.proto",
    "tensorflow_serving/config/logging_config.proto",
    "tensorflow_serving/config/model_server_config.proto",
)
# The messages to leave out, by file.
LEFT_OUT = {"tensorflow/core/protobuf/meta_graph.proto": {"MetaGraphDef", "CollectionDef"}}


def _types(message: descriptor_pb2.DescriptorProto) -> set[str]:
    """Returns the full names of all types that a message's fields have."""
    names = {field.type_name for field in message.field if field.type_name}
    return names.union(*map(_types, message.nested_type)) if message.nested_type else names


def _defined(prefix: str, messages: Iterable[descriptor_pb2.DescriptorProto]) -> set[str]:
    names = set()
    for message in messages:
        name = f"{prefix}.{message.name}"
        names |= {name, *(f"{name}.{e.name}" for e in message.enum_type)}
        names |= _defined(name, message.nested_type)
    return names


def _pruned(file: FileDescriptor) -> descriptor_pb2.FileDescriptorProto:
    proto = descriptor_pb2.FileDescriptorProto()
    file.CopyToProto(proto)
    if file.name in COLD:
        proto.options.optimize_for = descriptor_pb2.FileOptions.CODE_SIZE
    left_out = LEFT_OUT.get(file.name, set())
    if not left_out:
        return proto
    kept = [message for message in proto.message_type if message.name not in left_out]
    del proto.message_type[:]
    proto.message_type.extend(kept)
    used = set().union(*map(_types, kept))
    needed = []
    for dependency in file.dependencies:
        other = descriptor_pb2.FileDescriptorProto()
        dependency.CopyToProto(other)
        defined = _defined(f".{other.package}", other.message_type)
        defined |= {f".{other.package}.{enum.name}" for enum in other.enum_type}
        if defined & used:
            needed.append(dependency.name)
    del proto.dependency[:], proto.public_dependency[:]
    proto.dependency.extend(needed)
    return proto


def collect(file: FileDescriptor, into: dict[str, descriptor_pb2.FileDescriptorProto]) -> None:
    """Adds a file after those that it needs."""
    if file.name in into:
        return
    proto = _pruned(file)
    for dependency in file.dependencies:
        if dependency.name in proto.dependency:
            collect(dependency, into)
    into[file.name] = proto


def main(path: str, modules: Iterable[str]) -> None:
    """Writes a FileDescriptorSet to `path`, and prints the names of its files."""
    files: dict[str, descriptor_pb2.FileDescriptorProto] = {}
    collect(prediction_service_pb2.DESCRIPTOR, files)
    # Answered by the control process; reflection lists it.
    collect(model_service_pb2.DESCRIPTOR, files)
    # The server searches functions for ops that change state.
    collect(function_pb2.DESCRIPTOR, files)
    # How a SavedModel's variables are restored.
    collect(saver_pb2.DESCRIPTOR, files)
    for module in modules:
        collect(importlib.import_module(module).DESCRIPTOR, files)
    # In records of requests. The rest of a record needs no message of its own.
    collect(logging_pb2.DESCRIPTOR, files)
    Path(path).write_bytes(
        descriptor_pb2.FileDescriptorSet(file=files.values()).SerializeToString()
    )
    print(*files, sep="\n")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
