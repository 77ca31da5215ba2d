"""Trains small layers and prints what came out, as JSON: `gpu_layers_program.py cpu|gpu DIRECTORY`.

cpu: tables without a cache. gpu: the same with their caches on a GPU. What is printed is the same,
bit for bit. Everything random has a seed of its own.
"""

from __future__ import annotations

import ctypes
import hashlib
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import keras
import numpy as np
import pytest
import tensorflow as tf

import hotrow
from hotrow.config import parse_config
from hotrow.errors import FailedPreconditionError, InvalidArgumentError
from hotrow.trainer.checkpoint import CheckpointDirectory
from hotrow.trainer.loop import train as train_run
from hotrow.trainer.models import build_model
from hotrow.trainer.run_directory import CHECKPOINTS

KEYS = 1500
BATCHES = 6


def digest(values: Any) -> str:
    return hashlib.sha256(np.ascontiguousarray(values).tobytes()).hexdigest()[:16]


def skewed(rng: np.random.Generator, shape: Any) -> Any:
    return (KEYS * rng.random(shape) ** 3).astype(np.int64)


def batch(seed: int) -> tuple[dict[str, Any], dict[str, Any], Any]:
    """Returns keys, weights and labels: a ragged weighted feature, a dense one, one a key."""
    rng = np.random.default_rng(seed)
    samples = 90 if seed % 3 == 2 else 30
    lengths = rng.integers(0, 4, samples)
    total = int(lengths.sum())
    keys = {
        "history": tf.RaggedTensor.from_row_lengths(skewed(rng, total), lengths),
        "user": tf.constant(skewed(rng, (samples,))),
        "items": tf.constant(skewed(rng, (samples, 2))),
    }
    weights = {
        "history": tf.RaggedTensor.from_row_lengths(
            rng.random(total).astype(np.float32) + 0.5, lengths
        )
    }
    return keys, weights, tf.constant(rng.random((samples, 1)).astype(np.float32))


def signature() -> tuple[Any, Any, Any]:
    """Returns the types of a batch, of any number of samples."""

    def any_number(tensor: Any) -> Any:
        if isinstance(tensor, tf.RaggedTensor):
            return tf.RaggedTensorSpec([None, None], tensor.dtype, 1)
        return tf.TensorSpec([None, *tensor.shape[1:]], tensor.dtype)

    keys, weights, labels = tf.nest.map_structure(any_number, batch(0))
    return keys, weights, labels


class Ranker(keras.Model):  # type: ignore[misc]
    """Two tables, three features, one dense unit."""

    def __init__(self, caches: list[Any], **options: Any) -> None:
        super().__init__()
        users = hotrow.TableConfig("users", 5, optimizer=hotrow.Adagrad(0.1), cache=caches[0])
        items = hotrow.TableConfig(
            "items", 8, KEYS, optimizer=hotrow.Adam(0.01), default_value=0.5, cache=caches[1]
        )
        self.embedding = hotrow.DistributedEmbedding(
            [
                hotrow.FeatureConfig("history", items, "mean"),
                hotrow.FeatureConfig("user", users, "sum"),
                hotrow.FeatureConfig("items", items, None),
            ],
            seed=4,
            **options,
        )
        self.dense = keras.layers.Dense(
            1, kernel_initializer=keras.initializers.GlorotUniform(seed=7)
        )

    def call(self, inputs: Any, training: bool = False) -> Any:
        keys, weights = inputs
        rows = self.embedding(keys, weights=weights, training=training)
        pooled = [rows["history"], rows["user"], tf.reduce_sum(rows["items"], 1)]
        return self.dense(tf.concat(pooled, 1))


def loss_of(model: Ranker, keys: Any, weights: Any, labels: Any) -> Any:
    return tf.reduce_mean((model((keys, weights), training=True) - labels) ** 2)


def hand_written_loop(model: Ranker, compiled: bool) -> list[float]:
    optimizer = keras.optimizers.SGD(0.05)
    model((batch(0)[0], batch(0)[1]))
    optimizer.build(model.trainable_variables)

    def step(keys: Any, weights: Any, labels: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = loss_of(model, keys, weights, labels)
        variables = model.trainable_variables
        optimizer.apply(tape.gradient(loss, variables), variables)
        return loss

    run = tf.function(step, input_signature=signature()) if compiled else step
    return [float(run(*batch(seed))) for seed in range(BATCHES)]


def fit(model: Ranker, **options: Any) -> list[float]:
    def generate() -> Any:
        for seed in range(BATCHES):
            keys, weights, labels = batch(seed)
            yield (keys, weights), labels

    keys, weights, labels = signature()
    data = tf.data.Dataset.from_generator(generate, output_signature=((keys, weights), labels))
    data = data.apply(tf.data.experimental.assert_cardinality(BATCHES))
    model.compile(keras.optimizers.Adam(0.01, **options), "mse")
    losses = model.fit(data, epochs=2, verbose=0).history["loss"]
    return [*losses, float(model.evaluate(data, verbose=0))]


def twice_a_step(model: Ranker) -> list[float]:
    """Trains with two uses of the layer in a step, of other keys."""
    optimizer = keras.optimizers.SGD(0.05)
    losses = []
    for seed in range(BATCHES):
        with tf.GradientTape() as tape:
            loss = loss_of(model, *batch(seed)) + loss_of(model, *batch(seed + 1))
        variables = model.trainable_variables
        optimizer.apply(tape.gradient(loss, variables), variables)
        losses.append(float(loss))
    return losses


CASES: dict[str, tuple[dict[str, Any], Callable[[Ranker], list[float]]]] = {
    "eager": ({}, lambda model: hand_written_loop(model, compiled=False)),
    "compiled": ({}, lambda model: hand_written_loop(model, compiled=True)),
    "fit": ({}, fit),
    "accumulated": ({}, lambda model: fit(model, gradient_accumulation_steps=2)),
    "clipped": (
        {"global_clipnorm": 0.01},
        lambda model: hand_written_loop(model, compiled=True),
    ),
    "used twice": ({}, twice_a_step),
    "eager, in backward": (
        {"update": "backward"},
        lambda model: hand_written_loop(model, compiled=False),
    ),
    "fit, in backward": ({"update": "backward"}, fit),
    "clipped, in backward": (
        {"update": "backward", "global_clipnorm": 0.01},
        lambda model: hand_written_loop(model, compiled=True),
    ),
}


def facts(layer: hotrow.DistributedEmbedding) -> dict[str, Any]:
    """Returns what the tables of a layer hold, in every way that there is to see it."""
    results = {}
    for name, table in layer.tables.items():
        with_clocks = table.digest()
        snapshot = table.snapshot("all")
        read = [digest(array) for array in snapshot.read(100_000)]
        snapshot.close()
        exported = np.concatenate([rows.lines for rows in table.export_batches(500)])
        statistics = {
            key: value
            for key, value in table.statistics().items()
            if key != "bytes" and not key.startswith("cache")
        }
        rows = digest(table.lookup(np.arange(0, KEYS, 7)))
        state = digest(np.frombuffer(table.state(), np.uint8))
        results[name] = [with_clocks, table.step, read, digest(exported), statistics, rows, state]
    return results


def evaluation(model: Ranker) -> dict[str, str]:
    """Returns what keys read that are known, unknown and in no table; no table changes."""
    keys = {
        "history": tf.ragged.constant([[1, KEYS - 1], [], [7]], dtype=tf.int64),
        "user": tf.constant([10**15, 3, -5], tf.int64),
        "items": tf.constant([[0, KEYS - 1], [KEYS - 2, 5], [1, 2]], tf.int64),
    }
    weights = {"history": tf.ragged.constant([[0.5, 2.0], [], [1.0]], dtype=tf.float32)}
    before = facts(model.embedding)
    rows = model.embedding(keys, weights=weights)
    results = {name: digest(values) for name, values in rows.items()}
    results["scores"] = digest(model((keys, weights)))
    assert facts(model.embedding) == before
    return results


def saved_and_restored(caches: list[Any], folder: Path) -> dict[str, Any]:
    """Trains, saves, restores into tables that hold other rows, trains on."""
    first = Ranker(caches)
    hand_written_loop(first, compiled=True)
    path = folder / "ranker.weights.h5"
    first.save_weights(path)
    second = Ranker(caches)
    second.embedding.tables["users"].lookup(np.arange(3))
    second((batch(5)[0], batch(5)[1]), training=True)
    second.load_weights(path)
    assert facts(second.embedding) == facts(first.embedding)
    losses = hand_written_loop(second, compiled=True)
    return {"losses": losses, "tables": facts(second.embedding)}


def exported(caches: list[Any], folder: Path) -> list[str]:
    """Returns what an exported version answers, and the digests of its manifest."""
    table = hotrow.TableConfig("items", 8, optimizer=hotrow.Adam(0.01), cache=caches[1])
    layer = hotrow.DistributedEmbedding([hotrow.FeatureConfig("items", table)])
    inputs = {"items": keras.Input((2,), dtype="int64", name="items")}
    model = keras.Model(inputs, layer(inputs)["items"])
    model.compile("sgd", "mse")
    keys = skewed(np.random.default_rng(3), (200, 2))
    model.fit({"items": keys}, np.ones((200, 8)), batch_size=40, shuffle=False, verbose=0)
    version = hotrow.export_model(model, folder / "exported", "m")
    manifest = json.loads((version / "assets" / "hotrow_manifest.json").read_text())
    answer = tf.saved_model.load(str(version)).signatures["serving_default"]
    rows = answer(items=tf.constant(keys[:9]))["outputs"]
    return [
        digest(rows),
        digest(model.predict({"items": keys[:9]}, verbose=0)),
        *(json.dumps(table, sort_keys=True) for table in manifest["tables"]),
    ]


def run_of_the_command(cache: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Trains a configuration with checkpoints, resumes it, and loads the last checkpoint."""
    rng = np.random.default_rng(4)
    keys, labels = skewed(rng, (600, 2)), rng.integers(0, 2, 600)
    lines = [f"{label},{a},{b}" for label, (a, b) in zip(labels, keys, strict=True)]
    (folder / "train.csv").write_text("\n".join(["label,a,b", *lines]) + "\n")
    values = {
        "name": "small",
        "data": {"format": "csv", "train": str(folder / "train.csv"), "batch_size": 50},
        "features": {"sparse": {"columns": ["a", "b"], "dim": 4, "hash": False}},
        "tables": {"default": {"optimizer": "adam"}},
        "model": {"arch": "wide_deep", "hidden": [8]},
        "checkpoint": {"every_steps": 5},
        "train": {"epochs": 1},
        "cache": cache,
    }
    first = train_run(parse_config(values), folder / "run")
    values["train"] = {"epochs": 2}
    config = parse_config(values)
    second = train_run(config, folder / "run", resume=True)
    # Without a cache there are none.
    for statistics in second.tables.values():
        assert statistics["cache_rows_prefetched"] > 0
    model = build_model(config)
    checkpoints = CheckpointDirectory(folder / "run" / CHECKPOINTS, keep=3)
    assert checkpoints.restore_newest(model, optimizer=None, report=print) is not None
    results = {name: [table.digest(), table.step] for name, table in model.tables().items()}
    return {"qualities": [repr(first.train), repr(second.train)], "tables": results}


def check_refusals(cache: hotrow.Cache) -> None:
    """What a layer over a GPU refuses by name."""
    cached = hotrow.TableConfig("cached", 4, cache=cache)
    plain = hotrow.TableConfig("plain", 4)
    features = [hotrow.FeatureConfig("a", cached), hotrow.FeatureConfig("b", plain)]
    with pytest.raises(InvalidArgumentError, match=r"'cached' on .* and 'plain' on "):
        hotrow.DistributedEmbedding(features)
    elsewhere = hotrow.TableConfig("t", 4, cache=hotrow.Cache(rows=9, device="gpu:1"))
    with pytest.raises(FailedPreconditionError, match="TensorFlow has no GPU 1"):
        hotrow.DistributedEmbedding([hotrow.FeatureConfig("a", elsewhere)])


def main(device: str, folder: Path) -> None:
    caches: list[Any] = [None, None]
    section: dict[str, Any] = {}
    if device == "gpu":
        # Smaller than the distinct keys of the tables; of the batches, too.
        caches = [
            hotrow.Cache(rows=48, device="gpu"),
            hotrow.Cache(rows=300, policy="lru", device="gpu:0"),
        ]
        section = {"rows": 100, "device": "gpu", "prefetch": 2, "warmup": 0.5}
        check_refusals(caches[0])
    results: dict[str, Any] = {}
    for name, (options, train) in CASES.items():
        model = Ranker(caches, **options)
        losses = train(model)
        results[name] = {
            "losses": losses,
            "evaluation": evaluation(model),
            "tables": facts(model.embedding),
        }
        for table in model.embedding.tables.values() if device == "gpu" else ():
            statistics = table.statistics()
            assert statistics["cache_slots"] > 0
            assert statistics["cache_hits"] > 0
            assert statistics["cache_evicted"] > 0
    results["saved and restored"] = saved_and_restored(caches, folder)
    results["exported"] = exported(caches, folder)
    results["a run of the command"] = run_of_the_command(section, folder)
    if device == "gpu":
        core = ctypes.CDLL(str(Path(hotrow.__file__).with_name("libhotrow_core.so")))
        # All of the GPU's memory came from TensorFlow's allocator.
        assert core.simt_device_allocations() == 0
    print(json.dumps(results))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
