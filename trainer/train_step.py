"""One training step and one forward pass, as compiled functions of a model."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import keras
import tensorflow as tf

from hotrow.config import OptimizerConfig, RunConfig, learning_rate_as_spec
from hotrow.errors import HotrowError, from_status
from hotrow.ops.learning_rates import keras_learning_rate
from hotrow.trainer.model_inputs import ModelInputs, input_signature

if TYPE_CHECKING:
    from hotrow.trainer.models import Ranker

# Lines of an op's error that tell where in the graph it was; the last other line tells what.
_TRACE = ("Graph execution error", "Detected at node", "File ", "[[", "[Op:", "Hint:")

_OPTIMIZERS = {
    "adam": keras.optimizers.Adam,
    "adagrad": keras.optimizers.Adagrad,
    "rmsprop": keras.optimizers.RMSprop,
    "sgd": keras.optimizers.SGD,
}

Step = Callable[[ModelInputs, Any], Any]
Forward = Callable[[ModelInputs], Any]


def from_op_error(err: Any, where: str) -> HotrowError:
    """Returns an error of one line for what an op raised, without TensorFlow's graph trace.

    Args:
        err: a `tf.errors.OpError`.
        where: what was being done, e.g. "step 7".
    """
    lines = [line.strip() for line in err.message.splitlines()]
    told = [line for line in lines if line and not line.startswith(_TRACE)]
    return from_status(err.error_code, f"{where}: {told[-1] if told else type(err).__name__}")


def make_optimizer(config: OptimizerConfig, model: Ranker) -> Any:
    """Returns the Keras optimizer of the dense part, with its variables made."""
    # Unnamed, Keras numbers optimizers over the whole process, and a checkpoint needs the names.
    optimizer = _OPTIMIZERS[config.name](
        learning_rate=keras_learning_rate(learning_rate_as_spec(config.learning_rate)),
        clipnorm=config.clipnorm,
        global_clipnorm=config.global_clipnorm,
        name=config.name,
    )
    optimizer.build(model.trainable_variables)
    return optimizer


def make_train_step(model: Ranker, optimizer: Any, config: RunConfig) -> Step:
    """Returns a function that trains on one batch.

    The loss is the mean binary cross-entropy of the batch plus the model's penalties. Tables are
    updated in backward, the dense part by `optimizer`.

    Returns:
        (model inputs, labels float32 [B]) -> logits float32 [B] as they were before the update.
    """

    def train_step(inputs: ModelInputs, labels: Any) -> Any:
        with tf.GradientTape() as tape:
            logits = model(inputs, training=True)
            loss = tf.reduce_mean(
                tf.nn.sigmoid_cross_entropy_with_logits(labels=labels, logits=logits)
            )
            loss = tf.add_n([loss, *model.losses])
        variables = model.trainable_variables
        optimizer.apply(tape.gradient(loss, variables), variables)
        return logits

    labels = tf.TensorSpec([None], tf.float32)
    compiled: Step = tf.function(train_step, input_signature=[input_signature(config), labels])
    return compiled


def make_forward(model: Ranker, config: RunConfig) -> Forward:
    """Returns a function from model inputs to logits, float32 [B]; it changes no table."""

    def forward(inputs: ModelInputs) -> Any:
        return model(inputs, training=False)

    compiled: Forward = tf.function(forward, input_signature=[input_signature(config)])
    return compiled
