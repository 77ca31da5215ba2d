"""Overrides from the command line: `--set a.b=value` on raw configuration values."""

from __future__ import annotations

from typing import Any

import yaml

from hotrow.config.yaml_text import parse_yaml
from hotrow.errors import InvalidArgumentError


def apply_override(raw: dict[str, Any], override: str) -> None:
    """Sets one value in `raw`; creates the missing sections on its path.

    Args:
        raw: the configuration as plain dicts and lists; changed in place.
        override: `a.b=value`; the value is YAML; an empty one unsets the setting.

    Raises:
        InvalidArgumentError: no `=`, an empty part of the path, a value that is not YAML, or a
            path through something that is neither a section nor a list's entry.
    """
    path, equals, text = override.partition("=")
    keys = path.strip().split(".")
    if not equals or not all(keys):
        raise InvalidArgumentError(f"--set {override}: expected a.b=value, e.g. train.epochs=2")
    try:
        value = parse_yaml(text)
    except yaml.YAMLError as err:
        raise InvalidArgumentError(f"--set {override}: the value {text!r} is not YAML") from err
    node: Any = raw
    for depth, key in enumerate(keys):
        here = ".".join(keys[:depth])
        last = depth == len(keys) - 1
        if isinstance(node, dict):
            if last:
                node[key] = value
            elif node.get(key) is None:
                node[key] = {}
            node = node[key]
        elif isinstance(node, list):
            if not (key.isdecimal() and int(key) < len(node)):
                raise InvalidArgumentError(
                    f"--set {override}: {here} is a list of {len(node)}; {key!r} is not one of "
                    f"its numbers 0..{len(node) - 1}"
                )
            if last:
                node[int(key)] = value
            node = node[int(key)]
        else:
            raise InvalidArgumentError(
                f"--set {override}: {here} is {node!r}, not a section; nothing can be set in it"
            )
