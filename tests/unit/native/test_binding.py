"""The binding: its stub is true, its errors are ours, its version is checked."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import hotrow
from hotrow import _native, native


def names_of_stub():
    stub = ast.parse(Path(hotrow.__file__).with_name("_native.pyi").read_text())
    names = {}
    for node in stub.body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            members = node.body if isinstance(node, ast.ClassDef) else []
            names[node.name] = {m.name for m in members if isinstance(m, ast.FunctionDef)}
    return names


def test_the_stub_has_the_names_of_the_module():
    stub = names_of_stub()
    public = {name for name in dir(_native) if not name.startswith("__")}
    assert set(stub) | {"built_for_tensorflow", "NUMBERS"} == public
    for name, members in stub.items():
        if members:
            found = {m for m in vars(getattr(_native, name)) if not m.startswith("__")}
            assert members - {"__init__"} == found


def test_another_tensorflow_is_refused_in_one_line():
    import tensorflow as tf

    assert _native.built_for_tensorflow == tf.__version__
    native.check_tensorflow_version(tf.__version__)
    native.check_tensorflow_version(None)
    with pytest.raises(ImportError, match=r"built for TensorFlow .* and finds 2\.16\.1") as caught:
        native.check_tensorflow_version("2.16.1")
    assert "\n" not in str(caught.value)
