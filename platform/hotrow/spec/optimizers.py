"""Optimizers of tables: the update of a row in a step.

A step sums the gradients of a key in the batch to g, [D], in float32. Then, in this order:

    g *= clip_row_norm / |g|                  if clip_row_norm is set and |g| is larger
    g += l2 * w
    w -= learning_rate * weight_decay * w     decoupled from the gradient, as in AdamW
    the optimizer's own rule, with the semantics of Keras' optimizer of that name

Rows that are not in the batch do not change, nor does their state. All optimizers take these
keyword arguments:

    learning_rate: a number, a `Schedule` or a schedule object of Keras.
    l2: factor of the row's weights that is added to its gradient (`Ftrl` has an `l2` of its own).
    weight_decay: share of the weights, times the learning rate, that a step subtracts.
    clip_row_norm: largest norm of a row's gradient; None: no bound.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

from hotrow.spec.checks import float32, require, require_one_of
from hotrow.spec.schedules import LearningRate, learning_rate_of

SMALL_START = 1e-6
"""Where sums of squares start: about the square of a key's gradient of a batch's mean loss.

Keras starts at 0.1, which suits dense weights. The gradient of a key is the part of the mean that
its own samples have, about 1e-3: from 0.1 on, a row takes steps of a hundredth of the learning rate
and hardly moves (`benchmarks/defaults.py` has the numbers).
"""

_POSITIVE: tuple[Callable[[float], bool], str] = (lambda x: x > 0, "positive")
_NOT_NEGATIVE: tuple[Callable[[float], bool], str] = (lambda x: x >= 0, "0 or more")
_FRACTION: tuple[Callable[[float], bool], str] = (lambda x: 0 <= x < 1, "in [0, 1)")
_LEGAL = {
    "beta": _NOT_NEGATIVE,
    "beta_1": _FRACTION,
    "beta_2": _FRACTION,
    "epsilon": _POSITIVE,
    "initial_accumulator_value": _NOT_NEGATIVE,
    "l1": _NOT_NEGATIVE,
    "l2": _NOT_NEGATIVE,
    "l2_shrinkage": _NOT_NEGATIVE,
    "momentum": _FRACTION,
    "weight_decay": _NOT_NEGATIVE,
}


@dataclass(frozen=True)
class TableOptimizer:
    """The common arguments of table optimizers; see the module."""

    learning_rate: LearningRate = 0.01
    weight_decay: float = field(default=0.0, kw_only=True)
    clip_row_norm: float | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        kind = type(self).__name__
        for name in (f.name for f in dataclasses.fields(self)):
            value = getattr(self, name)
            if name == "learning_rate":
                object.__setattr__(self, name, learning_rate_of(value, f"{kind}.{name}"))
            elif name in _LEGAL:
                is_legal, legal = _LEGAL[name]
                require(is_legal(float32(value)), f"{kind}.{name}", value, legal)
        require(
            self.clip_row_norm is None or float32(self.clip_row_norm) > 0,
            f"{kind}.clip_row_norm",
            self.clip_row_norm,
            "positive, or None",
        )


@dataclass(frozen=True)
class SGD(TableOptimizer):
    """w -= learning_rate * g."""

    learning_rate: LearningRate = 0.01
    l2: float = field(default=0.0, kw_only=True)


@dataclass(frozen=True)
class Momentum(TableOptimizer):
    """Gradient descent with momentum: Keras' SGD(momentum=...).

    m = momentum * m - learning_rate * g; w += m, or with nesterov
    w += momentum * m - learning_rate * g. State: m, [D].
    """

    learning_rate: LearningRate = 0.01
    momentum: float = 0.9
    nesterov: bool = False
    l2: float = field(default=0.0, kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        is_bool = isinstance(self.nesterov, bool)
        require(is_bool, "Momentum.nesterov", self.nesterov, "True or False")


@dataclass(frozen=True)
class Adagrad(TableOptimizer):
    """Adagrad per weight, with the semantics of Keras' Adagrad.

    a += g^2; w -= learning_rate * g / sqrt(a + epsilon). State: a, [D].
    """

    learning_rate: LearningRate = 0.1
    initial_accumulator_value: float = SMALL_START
    epsilon: float = 1e-7
    l2: float = field(default=0.0, kw_only=True)


@dataclass(frozen=True)
class RowwiseAdagrad(TableOptimizer):
    """Adagrad with one accumulator a row, as in FBGEMM: 4 bytes of state a row, not 4 D.

    a += mean(g^2); w -= learning_rate * g / sqrt(a + epsilon). State: a, always float32.
    """

    learning_rate: LearningRate = 0.1
    initial_accumulator_value: float = SMALL_START
    epsilon: float = 1e-7
    l2: float = field(default=0.0, kw_only=True)


@dataclass(frozen=True)
class Adam(TableOptimizer):
    """Adam (Kingma and Ba, 2015), lazy: a row that is not in the batch keeps m and v.

    m += (1 - beta_1) (g - m); v += (1 - beta_2) (g^2 - v);
    w -= learning_rate * sqrt(1 - beta_2^t) / (1 - beta_1^t) * m / (sqrt(v) + epsilon).
    State: m and v, [D] each; t with bias_correction "row". With `weight_decay` it is AdamW.

    Attributes:
        bias_correction: the steps that t counts. "row": the row's own updates, so a rare row takes
            steps of full size from the first one on. "global": the table's steps, as in Keras; the
            m of a row that appears late starts at 0, and the correction no longer compensates for
            that.
    """

    learning_rate: LearningRate = 0.001
    beta_1: float = 0.9
    beta_2: float = 0.999
    epsilon: float = 1e-7
    bias_correction: Literal["row", "global"] = "row"
    l2: float = field(default=0.0, kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        require_one_of("Adam.bias_correction", self.bias_correction, ("row", "global"))


@dataclass(frozen=True)
class Ftrl(TableOptimizer):
    """FTRL-Proximal (McMahan et al., 2013), with the semantics of Keras' Ftrl.

    n' = n + g^2; z += g + 2 l2_shrinkage w - (sqrt(n') - sqrt(n)) / learning_rate * w;
    w = (clip(z, -l1, l1) - z) / ((sqrt(n') + beta) / learning_rate + 2 l2); n = n'.
    State: n and z, [D] each. z starts at 0, so a row's initial value only counts until its first
    update; where that matters, initialise rows with zero (`Constant(0.0)`).
    """

    learning_rate: LearningRate = 0.05
    initial_accumulator_value: float = SMALL_START
    l1: float = 0.0
    l2: float = 0.0
    l2_shrinkage: float = 0.0
    beta: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.l2 and not self.beta:
            require(
                self.initial_accumulator_value > 0,
                "Ftrl.initial_accumulator_value",
                self.initial_accumulator_value,
                "positive unless l2 or beta is",
            )


OPTIMIZERS: tuple[type[TableOptimizer], ...] = (
    SGD,
    Momentum,
    Adagrad,
    RowwiseAdagrad,
    Adam,
    Ftrl,
)
"""All of them."""
