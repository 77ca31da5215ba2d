"""What does a cache of hot rows hit, how much stall does prefetching remove, what does it cost?

Hit rates: one table, all rows present, the cache cold. Keys are Zipf(1.05), and real ones where the
shared data are at hand: the 26 columns of 10,000 Criteo rows, users and articles of 3 million news
clicks in the order of time. Beside each cache: an oracle that knows all frequencies and keeps the
most frequent rows from the start, with as many slots; and the hit rates that Colossal-AI's LFU
reached when we ran it (on Criteo data, cold and seeded with the frequencies of the
data set). By lookups: share of all keys whose row was in the cache. By unique rows: the same of the
distinct keys of each batch, which is what has to be moved.

Steps: Wide & Deep's deep part, 26 features of one table, dense layers between forward and backward.
Variants differ in cache and prefetching; they take turns of the same batches, so that where the
machine gets slower or faster, all do. A turn is a multiple of the longest window. A small cache
should hold the distinct rows of two windows: they are printed.

    python benchmarks/hot_rows.py [--only hits|steps] [--disk DIR] [--hidden 256,128] [--json F]
"""

from __future__ import annotations

import gzip
import json
import os
import platform
import statistics
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import click
import keras
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.csv
import tensorflow as tf
from peers.workload import BATCH, FEATURES, SKEW, hash_keys, zipf_ranks

import hotrow
from hotrow.ops.table import Table
from hotrow.trainer.prefetch import prefetch

Ids = npt.NDArray[np.int64]
SHARES = (0.05, 0.10, 0.20)
# (share, policy) -> hit rate by lookups and by unique rows, as published.
COLOSSAL = {
    (0.05, "lfu"): (0.803, 0.398),
    (0.10, "lfu"): (0.836, 0.492),
    (0.20, "lfu"): (0.872, 0.602),
    (0.05, "lfu, warmed up"): (0.818, 0.436),
    (0.10, "lfu, warmed up"): (0.865, 0.577),
    (0.20, "lfu, warmed up"): (0.904, 0.698),
}
POLICIES = ("lfu", "lfu, warmed up", "lru")
STALL_GOAL, MANAGEMENT_GOAL = 0.80, 0.10
INSERT_KEYS = 65_536


@dataclass(frozen=True)
class Stream:
    """Keys of a table's batches.

    Attributes:
        name: where they are from.
        batches: int64 [N] each, in order.
        frequencies: distinct keys of the whole table, most frequent first, and how often each
            comes: counts of all batches, or expected ones.
    """

    name: str
    batches: list[Ids]
    frequencies: tuple[Ids, npt.NDArray[np.float64]]

    @classmethod
    def counted(cls, name: str, batches: list[Ids]) -> Stream:
        """Returns a stream whose table has the keys that come."""
        keys, counts = np.unique(np.concatenate(batches), return_counts=True)
        order = np.argsort(-counts, kind="stable")
        return cls(name, batches, (keys[order], counts[order].astype(np.float64)))


def zipf_stream(rows: int, count: int) -> Stream:
    """Returns batches of 26 features that share a table of so many rows."""
    ranks = zipf_ranks(np.random.default_rng(1), rows, count * FEATURES * BATCH)
    keys = hash_keys(np.random.default_rng(2).permutation(rows))
    expected = np.arange(1, rows + 1) ** -SKEW
    return Stream(f"Zipf({SKEW})", list(keys[ranks].reshape(count, -1)), (keys, expected))


def real_streams(data: Path | None) -> Iterator[Stream]:
    """Yields the streams of the shared data that are there; the keys of a batch by column."""
    if data is None:
        return
    criteo = data / "criteo_head10k" / "criteo_head10k.tsv.gz"
    if criteo.exists():
        with gzip.open(criteo, "rt") as file:
            texts = np.array([line.rstrip("\n").split("\t")[14:] for line in file])
        codes = np.unique(np.char.add(np.arange(26).astype(str), texts), return_inverse=True)[1]
        rows = hash_keys(codes.reshape(texts.shape))
        yield Stream.counted(
            "Criteo, 10,000 rows, batch 256",
            [rows[i : i + 256].T.reshape(-1) for i in range(0, len(rows), 256)],
        )
    globo = data / "globo_news" / "clicks_sorted.csv.zst"
    if globo.exists():
        with pa.input_stream(str(globo)) as opened:
            clicks = pyarrow.csv.read_csv(opened)
        users = hash_keys(2 * clicks["user_id"].to_numpy())
        articles = hash_keys(2 * clicks["click_article_id"].to_numpy() + 1)
        yield Stream.counted(
            f"news clicks, batch {BATCH}",
            [
                np.concatenate([users[i : i + BATCH], articles[i : i + BATCH]])
                for i in range(0, len(users), BATCH)
            ],
        )


# --- hit rates ------------------------------------------------------------------------------------


def filled_table(stream: Stream, policy: str, slots: int) -> Table:
    """Returns a table with all rows of a stream and a cache that has seen none of its batches."""
    kind = "lru" if policy == "lru" else "lfu"
    cache = hotrow.Cache(rows=slots, policy=kind)  # type: ignore[arg-type]
    table = Table(hotrow.TableConfig("t", 4, optimizer=hotrow.SGD(0.1), cache=cache), seed=0)
    keys, frequencies = stream.frequencies
    # In any order but that of the frequencies.
    mixed = np.random.default_rng(3).permutation(keys)
    for first in range(0, len(mixed), INSERT_KEYS):
        table.lookup(mixed[first : first + INSERT_KEYS], insert=True)
    if policy.endswith("warmed up"):
        counts = np.maximum(1e6 * frequencies / frequencies.sum(), 1).astype(np.uint32)
        table.warm_up(keys, counts, 1.0)
    return table


def hits_of_table(stream: Stream, policy: str, slots: int) -> tuple[float, float, int]:
    """Returns hit rates by lookups and by unique rows, and the slots that there were."""
    table = filled_table(stream, policy, slots)
    before = table.statistics()
    for keys in stream.batches:
        table.lookup(keys, insert=True)
    after = table.statistics()
    hits, misses, lookups = (
        after[name] - before[name] for name in ("cache_hits", "cache_misses", "cache_hit_lookups")
    )
    all_lookups = sum(map(len, stream.batches))
    return lookups / all_lookups, hits / (hits + misses), after["cache_slots"]


def hits_of_oracle(stream: Stream, slots: int) -> tuple[float, float]:
    """Returns hit rates of the rows that are the most frequent, always in the cache."""
    kept = np.sort(stream.frequencies[0][:slots])
    lookups_hit = lookups = unique_hit = unique = 0
    for keys in stream.batches:
        distinct, counts = np.unique(keys, return_counts=True)
        there = np.isin(distinct, kept, assume_unique=True)
        lookups_hit += int(counts[there].sum())
        lookups += len(keys)
        unique_hit += int(there.sum())
        unique += len(distinct)
    return lookups_hit / lookups, unique_hit / unique


def measure_hits(streams: Iterator[Stream]) -> list[dict[str, Any]]:
    """Measures all policies and shares on each stream, and prints a line each."""
    results = []
    for stream in streams:
        rows, first = len(stream.frequencies[0]), stream.batches[0]
        click.echo(
            f"\n{stream.name}: {rows:,} rows, {len(stream.batches)} batches of {len(first):,} "
            f"keys, {len(np.unique(first)):,} of them distinct\n"
            f"{'share':>6} {'slots':>8}  {'policy':<16}{'lookups':>9}{'unique':>8}"
            f"{'oracle':>9}{'unique':>8}{'Colossal':>10}{'unique':>8}"
        )
        for share in SHARES:
            for policy in POLICIES:
                lookups, unique, slots = hits_of_table(stream, policy, round(share * rows))
                oracle = hits_of_oracle(stream, slots)
                theirs = COLOSSAL.get((share, policy))
                peer = f"{theirs[0]:>10.3f}{theirs[1]:>8.3f}" if theirs else f"{'-':>10}{'-':>8}"
                click.echo(
                    f"{share:>6.0%} {slots:>8,}  {policy:<16}{lookups:>9.3f}{unique:>8.3f}"
                    f"{oracle[0]:>9.3f}{oracle[1]:>8.3f}{peer}"
                )
                for metric, value, best in (
                    ("hit_rate_of_lookups", lookups, oracle[0]),
                    ("hit_rate_of_unique_rows", unique, oracle[1]),
                ):
                    results.append(
                        {
                            "case": f"{stream.name}, {share:.0%}, {policy}",
                            "metric": metric,
                            "value": value,
                            "unit": "share",
                            "baseline": "oracle",
                            "ratio": value / best,
                        }
                    )
    return results


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
        """Makes the model with all rows, and stands before the first batch."""
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
        self.table.wait_for_prefetch()  # what is left is not to run in the turn of another
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
