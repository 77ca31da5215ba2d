"""YAML as configurations use it: 1e-3 is a number, and a key may not appear twice."""

from __future__ import annotations

import re
from typing import Any

import yaml

_SCIENTIFIC = re.compile(r"^[-+]?[0-9][0-9_]*(\.[0-9_]*)?[eE][-+]?[0-9]+$")


class _Loader(yaml.SafeLoader):
    """A safe loader that refuses a repeated key in a mapping; PyYAML silently keeps the last."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen = set()
        for key_node, _ in node.value:
            key = key_node.value
            if key in seen and key != "<<":
                raise yaml.constructor.ConstructorError(
                    None, None, f"key {key!r} appears twice", key_node.start_mark
                )
            seen.add(key)
        return super().construct_mapping(node, deep=deep)


# PyYAML follows YAML 1.1, which reads 1e-3 as text; YAML 1.2 reads a number, as users expect.
_Loader.add_implicit_resolver("tag:yaml.org,2002:float", _SCIENTIFIC, list("-+0123456789"))


def parse_yaml(text: str) -> Any:
    """Returns the value of one YAML document; None for an empty one.

    Raises:
        yaml.YAMLError: the text is not YAML or a key appears twice in a mapping.
    """
    return yaml.load(text, Loader=_Loader)
