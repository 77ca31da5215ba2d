"""Worker: `hotrow.DistributedEmbedding`, forward, backward and commit of given gradients."""

from __future__ import annotations

from typing import Any

import keras
import tensorflow as tf

import hotrow
from peers.worker import (
    ACCUMULATOR,
    LEARNING_RATE,
    Request,
    measure,
    report,
    say,
    start,
    unavailable,
)
from peers.workload import FEATURES, Workload

# By optimizer: hotrow's name and options; one run each.
OPTIMIZERS: dict[str, list[tuple[str, dict[str, Any]]]] = {
    "sgd": [("SGD", {})],
    "adagrad": [("Adagrad", {"initial_accumulator_value": ACCUMULATOR})],
    "rowwise_adagrad": [("RowwiseAdagrad", {"initial_accumulator_value": ACCUMULATOR})],
    # The second equals TensorFlow's Adam, to compare the learned weights.
    "adam": [("Adam", {}), ("Adam", {"bias_correction": "global"})],
}


def layer_with_rows(
    workload: Workload, optimizer: Any, update: str, features: int
) -> hotrow.DistributedEmbedding:
    """Returns the layer with all rows of all tables present."""
    tables = [
        hotrow.TableConfig(
            f"t{i}",
            workload.dim,
            initializer=hotrow.Constant(0.0),
            optimizer=optimizer,
            combiner="sum",
        )
        for i in range(workload.tables)
    ]
    layer = hotrow.DistributedEmbedding(
        [hotrow.FeatureConfig(f"f{i}", tables[i % len(tables)]) for i in range(features)],
        update=update,  # type: ignore[arg-type]
    )
    for table in layer.tables.values():
        for keys in workload.all_keys():
            table.lookup(keys, insert=True)
    return layer


def run(request: Request, workload: Workload, name: str, update: str) -> None:
    """Measures one optimizer in one update mode."""
    for kind, options in OPTIMIZERS[name]:
        if not hasattr(hotrow, kind):
            unavailable(name, f"hotrow has no {kind} yet")
            return
        optimizer = getattr(hotrow, kind)(learning_rate=LEARNING_RATE[name], **options)
        # The peers look up all features of a table as one feature: their calls have fewer tensors.
        for features in sorted({FEATURES, workload.tables}, reverse=True):
            layer = layer_with_rows(workload, optimizer, update, features)
            say(f"hotrow {name} {update}: {sum(t.size for t in layer.tables.values())} rows")
            variant = [update]
            if "bias_correction" in options:
                variant.append("global")
            if features != FEATURES:
                variant.append("1 feature")
            measure_layer(request, workload, layer, name, " ".join(variant))


def measure_layer(
    request: Request,
    workload: Workload,
    layer: hotrow.DistributedEmbedding,
    name: str,
    variant: str,
) -> None:
    """Measures a layer's steps."""
    names = [feature.name for feature in layer.layout.features]
    shape = (len(names), -1)
    batches = [
        dict(zip(names, map(tf.constant, batch.reshape(shape)), strict=True))
        for batch in workload.keys
    ]
    given_gradients = workload.gradients().reshape(*shape, workload.dim)
    gradients = dict(zip(names, map(tf.constant, given_gradients), strict=True))
    dense_optimizer = keras.optimizers.SGD(0.01)
    dense_optimizer.build(layer.trainable_variables)

    @tf.function
    def step(keys: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        with tf.GradientTape() as tape:
            rows = layer(keys, training=True)
        variables = layer.trainable_variables
        given = tape.gradient(rows, variables, output_gradients=gradients)
        dense_optimizer.apply(given, variables)
        return rows

    facts = measure(lambda i: step(batches[i]), len(batches), request.repeats)
    rows = layer(batches[0])
    probe = float(tf.add_n([tf.reduce_sum(tf.abs(r)) for r in rows.values()]))
    held = sum(table.bytes for table in layer.tables.values())
    report(name, f"update={variant}", {**facts, "probe": probe, "table_bytes": held})


def main(request: Request, workload: Workload) -> None:
    """Measures the requested optimizers."""
    tf.config.threading.set_intra_op_parallelism_threads(request.threads)
    tf.config.threading.set_inter_op_parallelism_threads(request.threads)
    for name in request.optimizers:
        for mode in ("step", "backward"):
            run(request, workload, name, mode)


if __name__ == "__main__":
    main(*start())
