"""`tf.distribute` trains no tables: every strategy but the default one is refused by name."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from unit.ops.small_layer import KEYS, Model, layer

from hotrow.errors import UnimplementedError

MESSAGE = (
    r"tf\.distribute\.{} does not train tables, only the default strategy does; train on several "
    r"processes or GPUs with `platform train --workers N` or with DistributedEmbedding\(ranks=...\)"
)

ONE_DEVICE = "OneDeviceStrategy"

# Two replicas need two devices, which a process sets before TensorFlow begins.
PROGRAM = """
import tensorflow as tf

cpu = tf.config.list_physical_devices("CPU")[0]
tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
strategy = tf.distribute.MirroredStrategy(["/cpu:0", "/cpu:1"])

from unit.ops.test_tf_distribute import USES
for use in USES:
    try:
        print("ran:", use(strategy))
    except Exception as error:
        print("refused:", " ".join(str(error).split()))
"""


def a_layer_in_the_scope(strategy):
    with strategy.scope():
        layer()


def a_call_in_the_scope(strategy):
    embedding = layer()
    with strategy.scope():
        embedding({"f": KEYS}, training=True)


def a_call_on_a_replica(strategy):
    embedding = layer()
    strategy.run(lambda: embedding({"f": KEYS}, training=True))


def a_model_that_trains(strategy):
    embedding = layer()
    with strategy.scope():
        model = Model(embedding)
        model.compile("sgd", "mse")
    model.fit(np.arange(64), np.ones(64), batch_size=4, verbose=0)
    return f"{embedding.tables['t'].step} commits in 16 steps"


USES = [a_layer_in_the_scope, a_call_in_the_scope, a_call_on_a_replica, a_model_that_trains]


@pytest.mark.parametrize("use", USES)
def test_a_strategy_of_one_device_is_refused_by_name(use):
    strategy = tf.distribute.OneDeviceStrategy("/cpu:0")
    # Keras wraps the error when it builds a model.
    with pytest.raises((UnimplementedError, RuntimeError), match=MESSAGE.format(ONE_DEVICE)):
        use(strategy)


def test_two_replicas_are_refused_by_name():
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        capture_output=True,
        text=True,
        timeout=300,
        cwd=Path(__file__).parents[2],
    )
    lines = [line for line in done.stdout.splitlines() if line.startswith(("ran:", "refused:"))]
    assert len(lines) == len(USES), done.stderr
    for line in lines:
        assert line.startswith("refused:")
        assert re.search(MESSAGE.format("MirroredStrategy"), line)


def test_the_default_strategy_trains():
    model = Model(layer())
    with tf.distribute.get_strategy().scope():
        model.compile("sgd", "mse")
        model.fit(KEYS, np.ones(4), verbose=0)
    assert model.embedding.tables["t"].step == 1
