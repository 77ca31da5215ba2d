"""Initial weights of a new row."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Uniform:
    """Initial weights uniform in [-scale, scale)."""

    scale: float = 0.05


@dataclass(frozen=True)
class Normal:
    """Initial weights normal with mean 0 and deviation `stddev`."""

    stddev: float = 0.05


@dataclass(frozen=True)
class Constant:
    """Every initial weight is `value`."""

    value: float = 0.0


Initializer = Uniform | Normal | Constant
INITIALIZERS: tuple[type[Initializer], ...] = (Uniform, Normal, Constant)
