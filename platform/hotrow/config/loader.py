"""Reads a configuration from YAML, applies overrides and validates the result."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from hotrow.config.overrides import apply_override
from hotrow.config.problems import describe
from hotrow.config.run import RunConfig
from hotrow.config.yaml_text import parse_yaml
from hotrow.errors import HotrowError, InvalidArgumentError, NotFoundError

_PATH_KEYS = ("train", "valid")


def load_config(path: str | Path, overrides: Sequence[str] = ()) -> RunConfig:
    """Returns the validated configuration of a YAML file.

    Relative paths of data files are resolved against the file's directory; in `overrides`, against
    the working directory. The default `name` is the file's name.

    Args:
        path: the YAML file.
        overrides: texts `a.b=value` with values in YAML; later ones win. A number selects an entry
            of a list (`features.sparse.0.dim=8`).

    Raises:
        NotFoundError: the file does not exist.
        InvalidArgumentError: the file cannot be read or is not YAML, or a value is not legal; the
            message is one line with the value's path.
    """
    path = Path(path)
    raw = _read_mapping(path)
    _resolve_paths(raw, path.parent.resolve())
    for override in overrides:
        apply_override(raw, override)
    _resolve_paths(raw, Path.cwd())
    raw.setdefault("name", re.sub(r"[^A-Za-z0-9._-]", "-", path.stem))
    return parse_config(raw, source=str(path))


def parse_config(raw: Mapping[str, Any], source: str = "configuration") -> RunConfig:
    """Returns the validated configuration of plain dicts, lists and scalars.

    Args:
        raw: sections by name.
        source: name of the origin in errors.

    Raises:
        InvalidArgumentError: a value is not legal.
    """
    try:
        return RunConfig.model_validate(raw)
    except ValidationError as err:
        raise InvalidArgumentError(f"{source}: {describe(err, raw)}") from err


def _read_mapping(path: Path) -> dict[str, Any]:
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError as err:
        raise NotFoundError(f"no such configuration file: {path}; give a YAML file") from err
    except (OSError, UnicodeDecodeError) as err:
        reason = err.strerror if isinstance(err, OSError) else "it is not UTF-8 text"
        raise InvalidArgumentError(f"cannot read configuration {path}: {reason}") from err
    try:
        raw = parse_yaml(text)
    except (yaml.YAMLError, HotrowError) as err:
        raise InvalidArgumentError(f"{path}: not valid YAML: {_one_line(err)}") from err
    if not isinstance(raw, dict):
        found = "nothing" if raw is None else type(raw).__name__
        raise InvalidArgumentError(
            f"{path}: expected sections (data:, features:, model:, ...), found {found}"
        )
    return raw


def _resolve_paths(raw: dict[str, Any], base: Path) -> None:
    data = raw.get("data")
    if isinstance(data, dict):
        for key in _PATH_KEYS:
            if key in data:
                data[key] = _resolved(data[key], base)


def _resolved(path: Any, base: Path) -> Any:
    """Returns a path, or each path of a list, relative to a directory unless it is absolute."""
    if isinstance(path, list | tuple):
        return [_resolved(one, base) for one in path]
    return str(base / Path(path).expanduser()) if isinstance(path, str) and path else path


def _one_line(err: Exception) -> str:
    if isinstance(err, yaml.MarkedYAMLError) and err.problem_mark is not None:
        mark = err.problem_mark
        return f"line {mark.line + 1}, column {mark.column + 1}: {err.problem}"
    return " ".join(str(err).split())
