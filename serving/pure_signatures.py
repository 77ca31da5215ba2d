"""Which signatures of a SavedModel may run without anybody's asking: those that change nothing."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tensorflow.python.framework import op_def_registry

# Called "stateful" by TensorFlow, and yet they only read: variables, tables, what is called.
_READING = frozenset(
    {
        *("VarHandleOp", "ReadVariableOp", "VariableV2", "Variable", "IsVariableInitialized"),
        *("ResourceGather", "ResourceGatherNd", "VarIsInitializedOp"),
        *("HashTable", "HashTableV2", "LookupTableFind", "LookupTableFindV2"),
        *("LookupTableSize", "LookupTableSizeV2", "MutableHashTableV2"),
        *("StatefulPartitionedCall", "PartitionedCall", "If", "While", "Case"),
        *("RandomUniform", "RandomStandardNormal", "Assert"),
        # Of our exports; this process does not load the library that defines it.
        "HotrowServingLookup",
    }
)


def pure_signatures(meta_graph: Any) -> list[str]:
    """Returns the names of signatures whose outputs depend on no op that could change something.

    Args:
        meta_graph: a MetaGraphDef.
    """
    graph = meta_graph.graph_def
    nodes = {node.name: node for node in graph.node}
    functions = {function.signature.name: function for function in graph.library.function}
    known: dict[str, bool] = {}
    found = []
    for name, signature in meta_graph.signature_def.items():
        if name.startswith("__saved_model"):
            continue
        ends = {_node(info.name) for info in signature.inputs.values()}
        starts = [_node(info.name) for info in signature.outputs.values()]
        if _all_pure(_reachable(starts, ends, nodes), functions, known):
            found.append(name)
    return found


def _node(tensor: str) -> str:
    return tensor.removeprefix("^").split(":")[0]


def _reachable(starts: list[str], ends: set[str], nodes: dict[str, Any]) -> Iterable[Any]:
    seen = set(ends)
    waiting = list(starts)
    while waiting:
        name = waiting.pop()
        if name in seen or name not in nodes:
            continue
        seen.add(name)
        yield nodes[name]
        waiting.extend(_node(tensor) for tensor in nodes[name].input)


def _all_pure(nodes: Iterable[Any], functions: dict[str, Any], known: dict[str, bool]) -> bool:
    return all(_is_pure(node, functions, known) for node in nodes)


def _is_pure(node: Any, functions: dict[str, Any], known: dict[str, bool]) -> bool:
    called = [node.op] if node.op in functions else []
    for value in node.attr.values():
        called.extend(f.name for f in [value.func, *value.list.func] if f.name)
    for name in called:
        if name not in known:
            # While it is looked into: a function that calls itself is not waited for.
            known[name] = False
            function = functions.get(name)
            known[name] = function is not None and _all_pure(function.node_def, functions, known)
        if not known[name]:
            return False
    if node.op in functions or node.op in _READING:
        return True
    definition = op_def_registry.get(node.op)
    if definition is None or definition.is_stateful:
        return False
    # Ops that write to TensorFlow 1's variables are not called stateful.
    return not any(argument.is_ref for argument in definition.input_arg)
