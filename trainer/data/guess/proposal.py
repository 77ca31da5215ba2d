"""A configuration for a data file, as YAML with a comment at each guess."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import yaml

from hotrow.config import CRITEO_DENSE, CRITEO_SPARSE, parse_config
from hotrow.config.yaml_text import parse_yaml
from hotrow.errors import AlreadyExistsError, InvalidArgumentError
from hotrow.trainer.data.guess.reading import Reading
from hotrow.trainer.data.guess.roles import FEW_VALUES, ColumnRole, Role, role_of
from hotrow.trainer.data.summary import Summary

_STEPS_PER_EPOCH = 100
_MANY_ROWS = 1_000_000
_MANY_KEYS = 10_000


def write_proposal(path: Path, summary: Summary, reading: Reading) -> None:
    """Writes a configuration for `platform train`.

    Args:
        path: the file to write; it must not exist.
        summary: summary of the data file.
        reading: how to read it.

    Raises:
        AlreadyExistsError: `path` exists.
        InvalidArgumentError: the data have no labels or no column to learn from, or the file cannot
            be written.
    """
    require_new(path)
    text = "\n".join(_lines(path, summary, reading)) + "\n"
    parse_config(parse_yaml(text), source=str(path))
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as err:
        raise InvalidArgumentError(
            f"--write-config {path} cannot be written: {err.strerror}"
        ) from err


def require_new(path: Path) -> None:
    """Checks that a file does not exist yet.

    Raises:
        AlreadyExistsError: it exists; the user may have edited it.
    """
    if path.exists():
        raise AlreadyExistsError(f"--write-config {path} exists; remove it or name another file")


def _lines(path: Path, summary: Summary, reading: Reading) -> Iterator[str]:
    if not reading.has_label:
        names = ", ".join(column.name for column in summary.columns)
        raise InvalidArgumentError(
            f"{summary.path}: no column of labels was found (two values, such as 0 and 1); name "
            f"it with --label; the columns are: {names}"
        )
    name = re.sub(r"[^A-Za-z0-9._-]", "-", path.stem).lstrip("._-") or "run"
    yield f"# Proposed by `platform data inspect` from {summary.rows:,} rows."
    yield "# Lines with `guess` are guesses from the data: check them."
    yield f"name: {_yaml(name)}"
    yield "data:"
    yield from _data_lines(path, summary, reading)
    yield "features:"
    if reading.data.format == "criteo":
        yield from _criteo_lines()
    elif reading.data.format == "libsvm":
        yield "  sparse:"
        columns = [c.name for c in summary.columns]
        # A linear model of ids adds up their weights.
        yield from _group(columns, dim=_dim(summary), hash=False, combiner="sum")
        yield "model: {arch: logistic}"
    else:
        yield from _feature_lines(summary)
    yield "train:"
    epochs = 1 if summary.rows >= _MANY_ROWS else 3
    yield f"  epochs: {epochs}  # guess: more of them for few rows"


def _data_lines(path: Path, summary: Summary, reading: Reading) -> Iterator[str]:
    data = reading.data
    yield f"  format: {data.format}{_guess(reading, 'format')}"
    yield f"  train: {_yaml(_relative(Path(summary.path), path))}"
    yield "  # valid: FILE of other rows; without one nothing says how good the model is on them"
    for key in ("delimiter", "columns", "label", "positive"):
        value = getattr(data, key)
        if value is not None:
            value = list(value) if isinstance(value, tuple) else value
            yield f"  {key}: {_yaml(value)}{_guess(reading, key)}"
    if data.weights:
        yield "  weights: true"
    yield f"  batch_size: {_batch_size(summary.rows)}"
    if summary.malformed.count:
        yield f"  on_malformed: skip  # {_one_line(str(summary.malformed))}"


def _criteo_lines() -> Iterator[str]:
    yield "  dense:"
    yield from _group(CRITEO_DENSE, transform="log")
    yield "  sparse:"
    yield from _group(CRITEO_SPARSE, dim=16)
    yield "model: {arch: dlrm, bottom: [128, 64, 16], top: [256, 128]}"


def _feature_lines(summary: Summary) -> Iterator[str]:
    roles = [role_of(column, summary.counted_rows) for column in summary.columns]
    if all(role.role is Role.LEFT_OUT for role in roles):
        raise InvalidArgumentError(
            f"{summary.path}: no column is left to learn from: "
            + "; ".join(f"{role.column.name}: {role.reason}" for role in roles)
        )
    for role in roles:
        if role.role is Role.LEFT_OUT:
            yield f"  # left out: {_one_line(role.column.name)} (guess: {role.reason})"
    if dense := [r for r in roles if r.role in (Role.NUMBER, Role.LOG_NUMBER)]:
        yield "  dense:"
        for kind, options in ((Role.NUMBER, {}), (Role.LOG_NUMBER, {"transform": "log"})):
            if chosen := [r for r in dense if r.role is kind]:
                yield from _checks(chosen, "name ids under sparse with hash: false")
                yield from _group(_names(chosen), **options, standardize=True)
    if sparse := [r for r in roles if r.role in (Role.HASHED, Role.INTEGERS)]:
        yield "  sparse:"
        yield from _sparse_lines(sparse, _dim(summary))
    yield "model: {arch: wide_deep, hidden: [64, 32]}"


def _sparse_lines(sparse: Sequence[ColumnRole], dim: int) -> Iterator[str]:
    several = [r for r in sparse if r.column.separator or r.column.kind in ("ids", "texts")]
    single = [r for r in sparse if r not in several]
    if texts := [r for r in single if r.role is Role.HASHED]:
        yield from _checks(texts, "name numbers under dense; a text there is malformed")
        yield from _group(_names(texts), dim=dim)
    if integers := [r for r in single if r.role is Role.INTEGERS]:
        yield (
            f"    # guess: integers that are keys, by their name or with at most {FEW_VALUES} "
            "distinct values; name quantities under dense"
        )
        yield from _group(_names(integers), dim=dim, hash=False)
    for role in several:
        if role.reason:
            yield f"    # guess: {role.reason}"
        options: dict[str, Any] = {"dim": dim, "combiner": "mean"}
        if role.role is Role.INTEGERS:
            options["hash"] = False
        if role.column.separator is not None:
            options["separator"] = role.column.separator
        yield from _group([role.column.name], **options)


def _checks(roles: Iterable[ColumnRole], advice: str) -> Iterator[str]:
    """Yields a comment if some of the columns need a look."""
    notes = [f"{_one_line(r.column.name)}: {r.reason}" for r in roles if r.reason]
    if notes:
        yield f"    # guess: {', '.join(notes)}; {advice}"


def _group(columns: Sequence[str], **options: Any) -> Iterator[str]:
    yield f"    - columns: {_yaml(list(columns))}"
    for key, value in options.items():
        yield f"      {key}: {_yaml(value)}"


def _names(roles: Iterable[ColumnRole]) -> list[str]:
    return [role.column.name for role in roles]


def _dim(summary: Summary) -> int:
    return 16 if max(column.distinct for column in summary.columns) > _MANY_KEYS else 8


def _batch_size(rows: int) -> int:
    """Returns a power of two in [64, 4096] with at least about 100 steps an epoch."""
    return 1 << min(12, max(6, int(math.log2(max(1, rows / _STEPS_PER_EPOCH)))))


def _guess(reading: Reading, key: str) -> str:
    reason = reading.reasons.get(key)
    return "" if reason is None else f"  # guess: {_one_line(reason)}"


def _relative(data: Path, config: Path) -> str:
    """Returns the data file as the configuration names it: relative where it is below it."""
    data, folder = data.resolve(), config.resolve().parent
    return os.path.relpath(data, folder) if data.is_relative_to(folder) else str(data)


def _yaml(value: Any) -> str:
    text: str = yaml.safe_dump(
        value, default_flow_style=True, width=float("inf"), allow_unicode=True
    )
    return text.strip().removesuffix("\n...").strip()


def _one_line(text: str) -> str:
    return " ".join(text.split())
