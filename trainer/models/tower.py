"""A stack of dense layers, with weights that depend on the seed and the layer's name only."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import keras

from hotrow.trainer.models.batch_norm import BatchNormalization
from hotrow.trainer.models.dropout import Dropout


def seed_of(seed: int, name: str) -> int:
    """Returns a seed in [0, 2**31) for a named part of a model, the same on every machine."""
    digest = hashlib.sha256(f"{seed}/{name}".encode()).digest()
    return int.from_bytes(digest[:4], "little") >> 1


@dataclass(frozen=True, slots=True)
class TowerOptions:
    """Options that all hidden layers of a model share: see `hotrow.config.model`."""

    seed: int
    dropout: float = 0.0
    l2: float = 0.0
    batch_norm: bool = False


def linear(width: int, name: str, options: TowerOptions, use_bias: bool = True) -> Any:
    """Returns a dense layer without activation: [B, any] -> [B, width]."""
    return keras.layers.Dense(
        width,
        use_bias=use_bias,
        name=name,
        kernel_initializer=keras.initializers.GlorotUniform(seed=seed_of(options.seed, name)),
        kernel_regularizer=keras.regularizers.L2(options.l2) if options.l2 else None,
    )


class Tower(keras.layers.Layer):  # type: ignore[misc]
    """Hidden layers: each is dense, optional batch normalisation, ReLU, dropout.

    [B, any] -> [B, widths[-1]]; without widths it returns its input.
    """

    def __init__(self, widths: Sequence[int], name: str, options: TowerOptions) -> None:
        """Makes the layers; `name` must be unique in the model, because it determines the seeds."""
        super().__init__(name=name)
        self.stack: list[Any] = []
        for depth, width in enumerate(widths):
            part = f"{name}_{depth}"
            # Batch normalisation subtracts the mean, and with it a bias: the bias' gradient would
            # be noise, from which Adam would take full steps.
            dense = linear(width, f"{part}_dense", options, use_bias=not options.batch_norm)
            self.stack.append(dense)
            if options.batch_norm:
                self.stack.append(BatchNormalization(momentum=0.9, name=f"{part}_norm"))
            self.stack.append(keras.layers.ReLU(name=f"{part}_relu"))
            if options.dropout:
                self.stack.append(
                    Dropout(
                        options.dropout,
                        seed=seed_of(options.seed, f"{part}_dropout"),
                        name=f"{part}_dropout",
                    )
                )

    def build(self, input_shape: Any) -> None:
        """Builds every layer of the stack."""
        for layer in self.stack:
            layer.build(input_shape)
            input_shape = layer.compute_output_shape(input_shape)
        super().build(input_shape)

    def call(self, values: Any, training: bool = False) -> Any:
        """Returns the last hidden layer, float [B, widths[-1]]."""
        for layer in self.stack:
            if isinstance(layer, BatchNormalization | Dropout):
                values = layer(values, training=training)
            else:
                values = layer(values)
        return values
