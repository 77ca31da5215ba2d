"""JSON as TF Serving's RapidJSON reads and writes it.

Read: NaN, Infinity and Inf are numbers, text after the first value is ignored, a string may hold
any bytes. Written: floats with the fewest digits that give the same value back, always as floats.
"""

from __future__ import annotations

import json
import math
import re
from typing import Any

import numpy as np
import orjson

from hotrow.serving.wire.status import invalid

# Python strings carry bytes that are not UTF-8 in this way and return them unchanged.
BYTES_IN_STRING = "surrogateescape"
NESTED_TOO_DEEPLY = "JSON Parse error: the value is nested too deeply"

_SHOWN_CHARS = 256
_BLANK = " \t\n\r"
_INF_OR_STRING = re.compile(r'"(?:[^"\\]|\\.)*"|(?<![\w.])(-?)Inf(?![\w.])', re.DOTALL)
_DECODER = json.JSONDecoder()

# Python's reason for a refusal -> RapidJSON's.
_REASONS = {
    "Expecting value": "Invalid value.",
    "Expecting property name enclosed in double quotes": "Missing a name for object member.",
    "Expecting ':' delimiter": "Missing a colon after a name of object member.",
    "Expecting ',' delimiter": "Missing a comma or ] after an array element.",
    "Unterminated string starting at": "Missing a closing quotation mark in string.",
    "Invalid \\escape": "Invalid escape character in string.",
    "Invalid \\uXXXX escape": "Incorrect hex digit after \\u escape in string.",
    "Invalid control character at": "Invalid encoding in string.",
}


def parse_object(body: bytes) -> dict[str, Any]:
    """Returns the JSON object that the body begins with.

    Raises:
        RequestError: INVALID_ARGUMENT for an empty body, broken JSON, or another kind of value.
    """
    try:
        value = orjson.loads(body)
    except orjson.JSONDecodeError:  # refused, or one of RapidJSON's liberties
        value = _parse_as_rapidjson(body)
    if not isinstance(value, dict):
        raise invalid(f"JSON Value: {shown(value)} Is not object")
    return value


def _parse_as_rapidjson(body: bytes) -> Any:
    text = body.decode("utf-8", BYTES_IN_STRING)
    if not text:
        raise invalid("JSON Parse error: The document is empty")
    start = len(text) - len(text.lstrip(_BLANK))
    if start == len(text):
        raise invalid(f"JSON Parse error: The document is empty. at offset: {start}")
    if "Inf" in text:
        text = _INF_OR_STRING.sub(_spell_infinity, text)
    try:
        value, _ = _DECODER.raw_decode(text, start)
    except json.JSONDecodeError as err:
        reason = _REASONS.get(err.msg, f"{err.msg}.")
        raise invalid(f"JSON Parse error: {reason} at offset: {err.pos}") from err
    except RecursionError as err:
        raise invalid(NESTED_TOO_DEEPLY) from err
    except ValueError as err:
        raise invalid(f"JSON Parse error: {err}") from err
    return value


def shown(value: Any) -> str:
    """Returns a value for a message: indented as RapidJSON does, its first 256 characters."""
    return json.dumps(value, indent=4, ensure_ascii=False)[:_SHOWN_CHARS]


def kind_name(value: Any) -> str:
    """Returns RapidJSON's name of a value's kind."""
    if value is None:
        return "Null"
    if isinstance(value, bool):
        return "True" if value else "False"
    kinds = ((dict, "Object"), (list, "Array"), (str, "String"))
    return next((name for kind, name in kinds if isinstance(value, kind)), "Number")


def write_string(value: bytes | str) -> str:
    """Returns a quoted string; keeps bytes that are not UTF-8."""
    text = value if isinstance(value, str) else value.decode("utf-8", BYTES_IN_STRING)
    return json.dumps(text, ensure_ascii=False)


def write_float(value: float, single: bool) -> str:
    """Returns a number that reads back as the same value, and as a float ("2.0", not "2").

    Args:
        value: the number; may be NaN or infinite, which standard JSON lacks.
        single: whether it is a float32 (9 digits at most), else float64 (17).
    """
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    text = f"{value:g}"
    back = float(np.float32(text)) if single else float(text)
    if back != value:
        text = f"{value:.9g}" if single else f"{value:.17g}"
    return text if "." in text or "e" in text else f"{text}.0"


def _spell_infinity(found: re.Match[str]) -> str:
    return found[0] if found[0].startswith('"') else f"{found[1]}Infinity"
