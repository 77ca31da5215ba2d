"""The ops of a step stand on the device that the tables are on, what they take from the host there.

Graphs are looked at, not run: no GPU is needed.
"""

from __future__ import annotations

from typing import Any

import pytest
import tensorflow as tf

import hotrow
from hotrow.ops.anchor import AnchorVariable
from hotrow.ops.features import flatten
from hotrow.ops.learning_rates import LearningRates
from hotrow.ops.lookup import LookupLayout, TrainingLookup
from hotrow.ops.placement import CPU, Placement, placement_of
from hotrow.ops.table import Table

GPU = "/device:GPU:1"
SCHEDULE = hotrow.Schedule("CosineDecay", {"initial_learning_rate": 0.1, "decay_steps": 9})


def graph_of_a_step(device: str, learning_rate: Any) -> Any:
    """Returns the graph of a lookup, its gradient and the commit, of a table said to be there."""
    config = hotrow.TableConfig("t", 4, optimizer=hotrow.SGD(learning_rate))
    table = Table(config, seed=1)
    rates = LearningRates([table])
    anchor = AnchorVariable([table.handle], device, rates)
    layout = LookupLayout((config,), (hotrow.FeatureConfig("f", config),))

    @tf.function(input_signature=[tf.TensorSpec([None], tf.int64)])
    def step(keys: Any) -> Any:
        with tf.GradientTape() as tape:
            tape.watch(anchor.value)
            lookup = TrainingLookup(
                [table.handle],
                device,
                anchor.value,
                rates(),
                insert=True,
                update_in_backward=False,
                global_clipnorm=None,
            )
            (rows,) = lookup(layout, [flatten(layout.features[0], keys, None)])
            loss = tf.reduce_sum(rows)
        anchor.assign(tape.gradient(loss, anchor.value))
        return loss

    return step.get_concrete_function().graph, anchor


def input_of(op: Any, name: str) -> Any:
    """Returns an input of an op, one of those before its lists."""
    return op.inputs[[argument.name for argument in op.op_def.input_arg].index(name)]


@pytest.mark.parametrize("learning_rate", [0.1, SCHEDULE], ids=["constant", "schedule"])
@pytest.mark.parametrize("device", [CPU, GPU])
def test_ops_stand_where_the_tables_are(device: str, learning_rate: Any) -> None:
    graph, anchor = graph_of_a_step(device, learning_rate)
    assert anchor.value.device.endswith(CPU)
    ops = {op.type: op for op in graph.get_operations()}
    for name in ("HotrowLookup", "HotrowBackward", "HotrowCommit"):
        assert ops[name].device == device
        # A step would wait for what came from the GPU.
        assert input_of(ops[name], "learning_rates").device == CPU


def test_a_layer_in_memory_stands_on_the_cpu_where_tensorflow_would_choose_a_gpu() -> None:
    config = hotrow.TableConfig("t", 4, cache=hotrow.Cache(rows=100))
    assert placement_of(config) == Placement(CPU, None)
    layer = hotrow.DistributedEmbedding([hotrow.FeatureConfig("f", config)])

    for trainable, training in ((True, True), (True, False), (False, True)):
        layer.trainable = trainable

        @tf.function(input_signature=[tf.TensorSpec([None], tf.int64)])
        def look_up(keys: Any) -> Any:
            with tf.device(GPU):
                return layer({"f": keys}, training=training)  # noqa: B023

        operations = look_up.get_concrete_function().graph.get_operations()
        (lookup,) = (op for op in operations if op.type == "HotrowLookup")
        assert lookup.device == CPU
        anchor = input_of(lookup, "anchor")
        # A variable is read where it is.
        learns = trainable and training
        assert anchor.op.type == "ReadVariableOp" if learns else anchor.device == CPU
        assert input_of(lookup, "learning_rates").device == CPU
