"""Turns pydantic's validation errors into one line: path, value, legal values."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from hotrow.errors import nearest

_EXPECTED = {
    "bool_type": "true or false",
    "dict_type": "a section (a mapping of keys)",
    "finite_number": "a finite number",
    "float_type": "a number",
    "int_from_float": "an integer",
    "int_type": "an integer",
    "mapping_type": "a section (a mapping of keys)",
    "model_attributes_type": "a section (a mapping of keys)",
    "model_type": "a section (a mapping of keys)",
    "string_type": "a text",
    "tuple_type": "a list",
}
_BOUNDS = {
    "greater_than": ("gt", "more than"),
    "greater_than_equal": ("ge", "at least"),
    "less_than": ("lt", "less than"),
    "less_than_equal": ("le", "at most"),
}


def describe(err: ValidationError, raw: Any) -> str:
    """Returns one line for the first problem of `err`, and the number of further problems.

    Args:
        err: the error of the validation.
        raw: the validated value; it distinguishes the numbers of a list from those of the schema.
    """
    problems = err.errors(include_url=False)
    line = _describe_one(problems[0], raw)
    # An error in an inherited setting occurs in all heirs; it counts once.
    more = len({(problem["loc"][-1:], problem["msg"]) for problem in problems}) - 1
    return line if more == 0 else f"{line} (and {more} more)"


def _describe_one(problem: ErrorDetails, raw: Any) -> str:
    path = _path(problem["loc"], raw)
    what = _what(problem)
    return f"{path}: {what}" if path else what


def _path(loc: Sequence[int | str], raw: Any) -> str:
    keys: list[str] = []
    node = raw
    for key in loc:
        if isinstance(key, str) and key.startswith("<"):
            continue  # a tag of a union
        if isinstance(node, Mapping):
            if key not in node and (isinstance(key, int) or node.get("arch") == key):
                continue  # a single group is a list of one; a tag of the union of models
            node = node.get(key)
        elif isinstance(node, Sequence) and not isinstance(node, str) and isinstance(key, int):
            node = node[key] if key < len(node) else None
        keys.append(str(key))
    return ".".join(keys)


def _what(problem: ErrorDetails) -> str:
    kind, context = problem["type"], problem.get("ctx", {})
    value = _short(problem["input"])
    if kind == "hotrow":
        return str(context["message"])
    if kind == "missing":
        return "missing; this key is required"
    if kind == "union_tag_not_found":
        return "arch is missing; expected one of dlrm, wide_deep, logistic"
    if kind in ("literal_error", "union_tag_invalid"):
        legal = re.findall(r"'([^']*)'", context.get("expected", context.get("expected_tags", "")))
        given = context.get("tag", problem["input"])
        hint = nearest(given, legal) if isinstance(given, str) else ""
        name = "arch " if "tag" in context else ""
        return f"{name}{_short(given)} is not legal{hint}; expected one of {', '.join(legal)}"
    if kind == "string_type" and isinstance(problem["input"], bool | int | float):
        return _unquoted(problem["input"])
    if kind in _EXPECTED:
        return f"{value} is not legal; expected {_EXPECTED[kind]}"
    if kind in _BOUNDS:
        key, words = _BOUNDS[kind]
        return f"{value} is not legal; expected {words} {context[key]}"
    if kind == "too_short":
        return f"{value} is not legal; expected at least {context['min_length']} entry"
    if kind == "string_pattern_mismatch":
        return f"{value} is not legal; expected letters, digits and . _ - (a letter or digit first)"
    return f"{value} is not legal; {problem['msg'][:1].lower()}{problem['msg'][1:]}"


def _unquoted(value: bool | float) -> str:
    if isinstance(value, bool):
        words = "yes, on and true" if value else "no, off and false"
        quoted = '"yes"' if value else '"no"'
        return (
            f"{str(value).lower()} is not legal; expected a text, but YAML reads {words} as a "
            f"boolean: quote it, as in {quoted}"
        )
    return f'{value!r} is not legal; expected a text, not a number: quote it, as in "{value}"'


def _short(value: Any) -> str:
    value = list(value) if isinstance(value, tuple) else value
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."
