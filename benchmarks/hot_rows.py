"""What does a cache of hot rows hit, how much stall does prefetching remove, what does it cost?

Hit rates: one table, all rows present, the cache cold. Keys are Zipf(1.05), and real ones where the
shared data are at hand: the 26 columns of 10,000 Criteo rows, users and articles of 3 million news
clicks in the order of time. Beside each cache: an oracle that knows all frequencies and keeps the
most frequent rows from the start, with as many slots; and the hit rates that Colossal-AI's LFU
reached when we ran it (on Criteo data, cold and seeded with the frequencies of the
data set). By lookups: share of all keys whose row was in the cache. By unique rows: the same of the
distinct keys of each batch, whose rows have to be moved.

Steps: Wide & Deep's deep part, 26 features of one table, dense layers between forward and backward.
Variants differ in cache and prefetching. They take turns with the same batches, so that a change
of the machine's speed affects all of them. A turn is a multiple of the longest window. A small
cache should hold the distinct rows of two windows: they are printed.

    python benchmarks/hot_rows.py [--only hits|steps] [--disk DIR] [--hidden 256,128] [--json F]
"""

from __future__ import annotations

import json
import os
import platform
import statistics
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import click
import keras
import numpy as np
import tensorflow as tf
from hit_rates import INSERT_KEYS, Stream, measure_hits, real_streams, zipf_stream
from peers.workload import BATCH, FEATURES, SKEW

import hotrow
from hotrow.trainer.prefetch import prefetch

STALL_GOAL, MANAGEMENT_GOAL = 0.80, 0.10


# --- hit rates ------------------------------------------------------------------------------------


# --- steps ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Turn:
    """What a turn of a variant measured, in milliseconds a step."""

    cpu_ms: float
    wall_ms: float
    stall_ms: float
    hit_rate: float


@dataclass
class Variant:
    """A model with its table, and how it is trained.

    Attributes:
        name: of the variant.
        cache: of its table.
        window: batches of prefetching.
        turns: what was measured.
    """

    name: str
    cache: hotrow.Cache | None
    window: int
    turns: list[Turn] = field(default_factory=list)

    def start(self, stream: Stream, batches: list[dict[str, Any]], sizes: dict[str, Any]) -> None:
        """Makes the model with all rows, positioned before the first batch."""
        config = hotrow.TableConfig(
            "t", sizes["dim"], optimizer=hotrow.Adagrad(), combiner="sum", cache=self.cache
        )
        self.layer = hotrow.DistributedEmbedding(
            [hotrow.FeatureConfig(f"f{i}", config) for i in range(FEATURES)], update="backward"
        )
        self.table = self.layer.tables["t"]
        for first in range(0, len(stream.frequencies[0]), INSERT_KEYS):
            self.table.lookup(stream.frequencies[0][first : first + INSERT_KEYS], insert=True)
        starts = [keras.initializers.GlorotUniform(seed=i) for i in range(len(sizes["hidden"]) + 1)]
        dense = [
            keras.layers.Dense(width, activation="relu", kernel_initializer=start)
            for width, start in zip(sizes["hidden"], starts, strict=False)
        ]
        dense.append(keras.layers.Dense(1, kernel_initializer=starts[-1]))
        head = keras.Sequential([keras.Input((FEATURES * sizes["dim"],)), *dense])
        variables = [*self.layer.trainable_variables, *head.trainable_variables]
        optimizer = keras.optimizers.Adam(1e-3)
        optimizer.build(variables)

        @tf.function  # type: ignore[untyped-decorator]
        def step(keys: dict[str, tf.Tensor], labels: tf.Tensor) -> tf.Tensor:
            with tf.GradientTape() as tape:
                rows = self.layer(keys, training=True)
                logits = head(tf.concat(list(rows.values()), axis=1))
                loss = tf.reduce_mean(
                    tf.nn.sigmoid_cross_entropy_with_logits(labels=labels, logits=logits)
                )
            optimizer.apply(tape.gradient(loss, variables), variables)
            return loss

        self.step = step
        self.batches = iter(prefetch(batches, self.window, self.layer.prefetch))

    def run(self, steps: int, labels: Any) -> Turn:
        """Trains the next steps."""
        before = self.table.statistics()
        used, started = time.process_time(), time.perf_counter()
        for _ in range(steps):
            self.step(next(self.batches), labels).numpy()
        cpu, wall = time.process_time() - used, time.perf_counter() - started
        self.table.wait_for_prefetch()  # leave no work to another variant's turn
        after = self.table.statistics()
        counted = {key: after[key] - before[key] for key in after}
        lookups = counted["cache_hits"] + counted["cache_misses"]
        return Turn(
            1e3 * cpu / steps,
            1e3 * wall / steps,
            1e-6 * counted["cache_stall_ns"] / steps,
            counted["cache_hits"] / lookups if lookups else float("nan"),
        )

    def median(self, metric: str) -> float:
        """Returns the median over the turns."""
        return statistics.median(getattr(turn, metric) for turn in self.turns)


def variants_of(sizes: dict[str, Any], disk: str | None) -> list[Variant]:
    """Returns what is measured; the first has no cache."""
    near = {} if disk is None else {"disk": disk}
    # More slots than rows: no set overflows.
    everything = hotrow.Cache(rows=3 * sizes["rows"] // 2)
    part = hotrow.Cache(rows=round(sizes["share"] * sizes["rows"]), **near)  # type: ignore[arg-type]
    share = f"{sizes['share']:.0%}"
    return [
        Variant("no cache", None, 0),
        Variant("all rows, prefetching 0", everything, 0),
        Variant("all rows, prefetching 8", everything, 8),
        *(Variant(f"{share}, prefetching {window}", part, window) for window in (0, 1, 8, 32)),
    ]


def measure_steps(sizes: dict[str, Any], disk: str | None) -> list[dict[str, Any]]:
    """Measures all variants in turns, prints them and what the goals say."""
    turns, steps = sizes["rounds"] + 1, sizes["steps"]
    stream = zipf_stream(sizes["rows"], turns * steps)
    batches = [
        {f"f{i}": tf.constant(keys) for i, keys in enumerate(batch.reshape(FEATURES, BATCH))}
        for batch in stream.batches
    ]
    labels = tf.constant(np.random.default_rng(4).integers(0, 2, (BATCH, 1)), tf.float32)
    variants = variants_of(sizes, disk)
    for variant in variants:
        variant.start(stream, batches, sizes)
        variant.run(steps, labels)  # traces, and fills the cache
    for _ in range(sizes["rounds"]):
        for variant in variants:
            variant.turns.append(variant.run(steps, labels))
    distinct = ", ".join(
        f"{len(np.unique(np.concatenate(stream.batches[:count]))):,} of {count}"
        for count in (1, 8, 16, 32, 64)
    )
    slots = variants[-1].table.statistics()["cache_slots"]
    click.echo(
        f"\ndistinct rows of so many batches: {distinct}; slots of the small caches: {slots:,}"
    )
    click.echo(
        f"\n{'step':<24}{'CPU ms':>9}{'ratio':>7}{'wall ms':>9}{'ratio':>7}{'stall ms':>10}"
        f"{'hit rate':>10}"
    )
    results, base = [], variants[0]
    for variant in variants:
        cpu, wall = variant.median("cpu_ms"), variant.median("wall_ms")
        ratios = cpu / base.median("cpu_ms"), wall / base.median("wall_ms")
        stall, rate = variant.median("stall_ms"), variant.median("hit_rate")
        click.echo(
            f"{variant.name:<24}{cpu:>9.2f}{ratios[0]:>7.3f}{wall:>9.2f}{ratios[1]:>7.3f}"
            f"{stall:>10.3f}{rate:>10.3f}"
        )
        for metric, value, ratio in (
            ("cpu_a_step", cpu, ratios[0]),
            ("wall_a_step", wall, ratios[1]),
            ("stall_a_step", stall, None),
        ):
            results.append(
                {
                    "case": variant.name,
                    "metric": metric,
                    "value": value,
                    "unit": "ms",
                    "baseline": None if ratio is None else base.name,
                    "ratio": ratio,
                }
            )
    click.echo("\n" + "\n".join(verdicts(variants)))
    return results


def verdicts(variants: list[Variant]) -> list[str]:
    """Returns one sentence a goal, and one for how sure it is."""
    none, _, everything, first, *ahead = variants
    sentences = [
        f"prefetching {variant.window} removes "
        f"{1 - variant.median('stall_ms') / first.median('stall_ms'):.1%} of the stall of "
        "prefetching 0" + (f" (goal {STALL_GOAL:.0%})" if variant.window == 8 else "")
        for variant in ahead
    ]
    for metric, name in (("cpu_ms", "CPU"), ("wall_ms", "wall")):
        pairs = zip(everything.turns, none.turns, strict=True)
        shares = sorted(1 - getattr(n, metric) / getattr(e, metric) for e, n in pairs)
        sentences.append(
            f"cache management, {name}: {statistics.median(shares):.1%} of the step, median of "
            f"{len(shares)} pairs of turns from {shares[0]:.1%} to {shares[-1]:.1%} (goal "
            f"{MANAGEMENT_GOAL:.0%})"
        )
    return sentences


@click.command()
@click.option("--only", type=click.Choice(["hits", "steps"]), help="Leave the other part out.")
@click.option("--rows", default=4_000_000, show_default=True, help="Of the table of the steps.")
@click.option("--zipf-rows", default=1_000_000, show_default=True, help="Of that of the hit rates.")
@click.option("--batches", default=100, show_default=True, help="Of the Zipf hit rates.")
@click.option("--dim", default=16, show_default=True)
@click.option("--hidden", default="256,128", show_default=True, help="Widths of the dense part.")
@click.option("--share", default=0.10, show_default=True, help="Of the rows in a small cache.")
@click.option("--steps", default=32, show_default=True, help="Of a turn; a multiple of 32.")
@click.option("--rounds", default=5, show_default=True, help="Turns of each variant.")
@click.option("--disk", type=click.Path(file_okay=False, exists=True), help="Other rows lie here.")
@click.option(
    "--data", type=click.Path(path_type=Path), help="Shared data.  [default: $SHARED/data]"
)
@click.option("--json", "json_path", type=click.Path(path_type=Path))
def main(
    only: str | None,
    zipf_rows: int,
    batches: int,
    disk: str | None,
    data: Path | None,
    json_path: Path | None,
    **sizes: Any,
) -> None:
    """Measures hit rates, stall and cost of caches, and prints tables."""
    if sizes["steps"] % 32:
        raise click.BadParameter(f"{sizes['steps']}; must be a multiple of 32, the longest window")
    sizes["hidden"] = [int(width) for width in sizes["hidden"].split(",")]
    if data is None and "SHARED" in os.environ:
        data = Path(os.environ["SHARED"]) / "data"
    conditions = {
        "machine": f"{platform.machine()}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}",
        "date": time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime()),
        "features": FEATURES,
        "batch": BATCH,
        "keys": f"Zipf({SKEW})",
        "optimizer": "Adagrad, dense Adam",
        "other rows": "in RAM" if disk is None else "on disk",
        **sizes,
    }
    for name, value in conditions.items():
        click.echo(f"{name:<12} {value}")
    results = []
    if only != "steps":
        zipf = zipf_stream(zipf_rows, batches)
        results += measure_hits(
            stream for streams in ([zipf], real_streams(data)) for stream in streams
        )
    if only != "hits":
        results += measure_steps(sizes, disk)
    if json_path is not None:
        json_path.write_text(json.dumps({"conditions": conditions, "results": results}, indent=1))


if __name__ == "__main__":
    main()
