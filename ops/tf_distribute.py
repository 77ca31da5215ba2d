"""`tf.distribute` trains no tables: strategies other than the default one are refused by name."""

from __future__ import annotations

import tensorflow as tf

from hotrow.errors import UnimplementedError


def refuse_strategy(layer: str) -> None:
    """Checks that no strategy of `tf.distribute` is in force but the default one.

    Each replica would commit its own gradients: a table would take one step a replica, and with
    several processes each would train rows of its own.

    Args:
        layer: name of the layer, for the message.

    Raises:
        UnimplementedError: inside the scope of a strategy, or on a replica of one.
    """
    if tf.distribute.has_strategy():
        strategy = type(tf.distribute.get_strategy()).__name__
        raise UnimplementedError(
            f"{layer}: tf.distribute.{strategy} does not train tables, only the default strategy "
            "does; train on several processes or GPUs with `platform train --workers N` or with "
            "DistributedEmbedding(ranks=...)"
        )
