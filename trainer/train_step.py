"""One training step and one forward pass, as compiled functions of a model."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import keras
import tensorflow as tf

from hotrow.config import OptimizerConfig, RunConfig, learning_rate_as_spec
from hotrow.errors import HotrowError, from_status
from hotrow.ops.dense_gradients import sum_over_ranks
from hotrow.ops.learning_rates import keras_learning_rate
from hotrow.ops.ranks import LONE, Ranks
from hotrow.trainer.model_inputs import ModelInputs, input_signature
from hotrow.trainer.models.part_of_batch import part_of_batch

if TYPE_CHECKING:
    from hotrow.trainer.models import Ranker

# Lines of an op's error about its place in the graph; the last other line is the message.
_TRACE = ("Graph execution error", "Detected at node", "File ", "[[", "[Op:", "Hint:")

_OPTIMIZERS = {
    "adam": keras.optimizers.Adam,
    "adagrad": keras.optimizers.Adagrad,
    "rmsprop": keras.optimizers.RMSprop,
    "sgd": keras.optimizers.SGD,
}

Step = Callable[..., Any]
Forward = Callable[[ModelInputs], Any]


def from_op_error(err: Any, where: str) -> HotrowError:
    """Returns a one-line error for an op's error, without TensorFlow's graph trace.

    Args:
        err: a `tf.errors.OpError`.
        where: the current action, e.g. "step 7".
    """
    lines = [line.strip() for line in err.message.splitlines()]
    messages = [line for line in lines if line and not line.startswith(_TRACE)]
    return from_status(
        err.error_code, f"{where}: {messages[-1] if messages else type(err).__name__}"
    )


def make_optimizer(config: OptimizerConfig, model: Ranker) -> Any:
    """Returns the Keras optimizer of the dense part, with its variables made."""
    # Without a name, Keras numbers optimizers over the whole process; checkpoints need fixed names.
    optimizer = _OPTIMIZERS[config.name](
        learning_rate=keras_learning_rate(learning_rate_as_spec(config.learning_rate)),
        clipnorm=config.clipnorm,
        global_clipnorm=config.global_clipnorm,
        name=config.name,
    )
    optimizer.build(model.trainable_variables)
    return optimizer


def make_train_step(model: Ranker, optimizer: Any, config: RunConfig, ranks: Ranks = LONE) -> Step:
    """Returns a function that trains on one batch, or on this rank's part of it; a collective.

    The loss is the sum of the binary cross-entropies over the batch of all ranks, each times the
    weights of its row and its class, divided by the number of rows, plus the model's penalties. The
    backward pass updates the tables; `optimizer` updates the dense part, equally on all ranks.

    Returns:
        (model inputs, labels float32 [B], rows of the batch of all ranks, if not B, weights of the
        rows float32 [B], if the configuration names a column of them, where this rank's part begins
        in the batch, if not as in `hotrow.trainer.data.part`) -> logits float32 [B] as they were
        before the update.
    """
    by_row, by_class = config.data.weight is not None, config.train.class_weight

    def train_step(inputs: ModelInputs, labels: Any, weights: Any, rows: Any, first: Any) -> Any:
        with contextlib.ExitStack() as context:
            if ranks.size > 1:
                context.enter_context(part_of_batch(ranks, rows, first))
            tape = context.enter_context(tf.GradientTape())
            logits = model(inputs, training=True)
            losses = tf.nn.sigmoid_cross_entropy_with_logits(labels=labels, logits=logits)
            if by_class is not None:
                losses *= tf.where(labels > 0.5, by_class.get(1, 1.0), by_class.get(0, 1.0))
            if by_row:
                losses *= weights
            # A sample's gradient has the same bits on whichever rank it is.
            loss = tf.reduce_sum(losses) / tf.cast(rows, tf.float32)
            loss = tf.add_n([loss, *(penalty / ranks.size for penalty in model.losses)])
        variables = model.trainable_variables
        gradients = tape.gradient(loss, variables)
        if ranks.size > 1:
            gradients = _summed(variables, gradients, model, ranks)
        optimizer.apply(gradients, variables)
        return logits

    signature = [
        input_signature(config),
        tf.TensorSpec([None], tf.float32),
        tf.TensorSpec([None], tf.float32),
        tf.TensorSpec([], tf.int32),
        tf.TensorSpec([], tf.int32),
    ]
    compiled = _compiled(train_step, signature)

    def step(
        inputs: ModelInputs,
        labels: Any,
        rows: int | None = None,
        weights: Any = None,
        first: int | None = None,
    ) -> Any:
        rows = len(labels) if rows is None else rows
        first = ranks.rank * rows // ranks.size if first is None else first
        # The call would convert each value that is no tensor, and labels twice.
        labels = tf.constant(labels)
        given = labels if weights is None else tf.constant(weights)  # labels: they are unused
        return compiled(inputs, labels, given, _scalar(rows), _scalar(first))

    return step


@functools.lru_cache(maxsize=64)
def _scalar(value: int) -> Any:
    """Returns an int32 tensor on the host; most steps have the rows of the one before."""
    with tf.device("CPU:0"):
        return tf.constant(value, tf.int32)


def _summed(variables: list[Any], gradients: list[Any], model: Ranker, ranks: Ranks) -> list[Any]:
    """Returns the gradients; those of dense variables are summed over the ranks."""
    anchor = None if model.embedding is None else model.embedding.anchor
    dense = [number for number, variable in enumerate(variables) if variable is not anchor]
    sums = sum_over_ranks([gradients[number] for number in dense], ranks)
    summed = list(gradients)
    for number, gradient in zip(dense, sums, strict=True):
        summed[number] = gradient
    return summed


def make_forward(model: Ranker, config: RunConfig) -> Forward:
    """Returns a function from model inputs to logits, float32 [B]; it changes no table."""

    def forward(inputs: ModelInputs) -> Any:
        return model(inputs, training=False)

    return _compiled(forward, [input_signature(config)])


def _compiled(function: Callable[..., Any], signature: list[Any]) -> Callable[..., Any]:
    """Returns a function of these type specs as one graph, which its first call traces."""
    # Without autograph: our models have no branch on a tensor, and Python 3.11's parser of source
    # fails at times when ranks that are threads trace together ("AST constructor recursion depth").
    traced = tf.function(function, input_signature=signature, autograph=False)
    # A call of `traced` itself looks for the graph of its arguments, in 0.2 ms of Python.
    graph = functools.cache(traced.get_concrete_function)
    return lambda *arguments: graph()(*arguments)
