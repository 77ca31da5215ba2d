"""A float64 model of tables and their optimizers, written from the documentation with numpy.

U rows of a batch, D weights a row. A state is a dictionary of float64 arrays: [U, D] for a value
a weight, [U, 1] for one a row. Numbers of an optimizer are taken as the float32 that the core
holds: 1 - 0.999 differs from 1 - float32(0.999) by 5e-5 of itself.
"""

from __future__ import annotations

import dataclasses

import numpy as np

import hotrow


def as_float32(value):
    return float(np.float32(value))


def clipped(gradient, bound):
    """Shortens rows that are longer than `bound`; None: no bound."""
    if bound is None:
        return gradient
    norms = np.linalg.norm(gradient, axis=1, keepdims=True)
    return gradient * np.where(norms > bound, bound / np.maximum(norms, 1e-300), 1.0)


def sgd(weights, state, gradient, o, lr, step):
    return weights - lr * gradient, state


def momentum(weights, state, gradient, o, lr, step):
    mu = as_float32(o.momentum)
    m = mu * state["m"] - lr * gradient
    move = mu * m - lr * gradient if o.nesterov else m
    return weights + move, {"m": m}


def adagrad(weights, state, gradient, o, lr, step):
    a = state["a"] + gradient**2
    return weights - lr * gradient / np.sqrt(a + as_float32(o.epsilon)), {"a": a}


def rowwise_adagrad(weights, state, gradient, o, lr, step):
    a = state["a"] + (gradient**2).mean(axis=1, keepdims=True)
    return weights - lr * gradient / np.sqrt(a + as_float32(o.epsilon)), {"a": a}


def adam(weights, state, gradient, o, lr, step):
    beta_1, beta_2 = o.beta_1, o.beta_2
    m = beta_1 * state["m"] + (1 - beta_1) * gradient
    v = beta_2 * state["v"] + (1 - beta_2) * gradient**2
    after = {"m": m, "v": v}
    t = float(step)
    if o.bias_correction == "row":
        t = after["t"] = state["t"] + 1
    m_hat, v_hat = m / (1 - beta_1**t), v / (1 - beta_2**t)
    # epsilon is added to sqrt(v) as it is, as Keras does: to sqrt(v_hat) it counts more.
    epsilon = as_float32(o.epsilon) / np.sqrt(1 - beta_2**t)
    return weights - lr * m_hat / (np.sqrt(v_hat) + epsilon), after


def ftrl(weights, state, gradient, o, lr, step):
    n = state["n"] + gradient**2
    sigma = (np.sqrt(n) - np.sqrt(state["n"])) / lr
    z = state["z"] + gradient + 2 * as_float32(o.l2_shrinkage) * weights - sigma * weights
    l1 = as_float32(o.l1)
    divisor = (as_float32(o.beta) + np.sqrt(n)) / lr + 2 * as_float32(o.l2)
    shrunk = np.sign(z) * np.maximum(np.abs(z) - l1, 0.0)
    return -shrunk / divisor, {"n": n, "z": z}


RULES = {
    hotrow.SGD: sgd,
    hotrow.Momentum: momentum,
    hotrow.Adagrad: adagrad,
    hotrow.RowwiseAdagrad: rowwise_adagrad,
    hotrow.Adam: adam,
    hotrow.Ftrl: ftrl,
}


def vectors_of(optimizer):
    """Returns the names of the state values that a row has one a weight, in the line's order."""
    return {
        hotrow.Momentum: ["m"],
        hotrow.Adagrad: ["a"],
        hotrow.Adam: ["m", "v"],
        hotrow.Ftrl: ["n", "z"],
    }.get(type(optimizer), [])


def scalars_of(optimizer):
    """Returns the names of the state values that a row has one of, in the line's order."""
    if isinstance(optimizer, hotrow.RowwiseAdagrad):
        return ["a"]
    by_row = isinstance(optimizer, hotrow.Adam) and optimizer.bias_correction == "row"
    return ["t"] if by_row else []


def new_state(optimizer, rows, dim):
    """Returns the state of rows that were just created."""
    start = as_float32(getattr(optimizer, "initial_accumulator_value", 0.0))
    values = {"m": 0.0, "v": 0.0, "z": 0.0, "t": 0.0, "a": start, "n": start}
    state = {name: np.full((rows, dim), values[name]) for name in vectors_of(optimizer)}
    return state | {name: np.full((rows, 1), values[name]) for name in scalars_of(optimizer)}


def updated(optimizer, weights, state, gradient, step, learning_rate=None):
    """Returns (weights [U, D], state) of rows after a step with the summed gradients [U, D].

    step: of the table, from 1.
    """
    o = optimizer
    lr = as_float32(o.learning_rate if learning_rate is None else learning_rate)
    gradient = clipped(gradient, None if o.clip_row_norm is None else as_float32(o.clip_row_norm))
    if not isinstance(o, hotrow.Ftrl):
        gradient = gradient + as_float32(o.l2) * weights
    weights = weights - lr * as_float32(o.weight_decay) * weights
    return RULES[type(o)](weights, state, gradient, o, lr, step)


class NumpyTable:
    """Rows of all keys of a vocabulary, [K, D] float64, with the state of each.

    weights: where the rows start.
    """

    def __init__(self, optimizer, weights):
        self.optimizer = optimizer
        self.weights = np.array(weights, np.float64)
        self.state = new_state(optimizer, *self.weights.shape)
        self.step = 0

    def apply(self, gradients, touched, learning_rate=None):
        """A step: gradients [K, D], of which the rows `touched` bool [K] were in the batch."""
        self.step += 1
        state = {name: values[touched] for name, values in self.state.items()}
        weights, state = updated(
            self.optimizer,
            self.weights[touched],
            state,
            gradients[touched],
            self.step,
            learning_rate,
        )
        self.weights[touched] = weights
        for name, values in state.items():
            self.state[name][touched] = values


def options_id(optimizer):
    """Returns a readable name: the optimizer and what differs from its defaults."""
    default = type(optimizer)()
    names = [f.name for f in dataclasses.fields(optimizer) if f.name != "learning_rate"]
    own = [n for n in names if getattr(optimizer, n) != getattr(default, n)]
    return ",".join([type(optimizer).__name__, *(f"{n}={getattr(optimizer, n)}" for n in own)])
