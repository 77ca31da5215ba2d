"""Hit rates of the cache of hot rows, of LRU and of an oracle, on Zipf and on real data."""

from __future__ import annotations

import gzip
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import click
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.csv
from peers.workload import BATCH, FEATURES, SKEW, hash_keys, zipf_ranks

import hotrow
from hotrow.ops.table import Table

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


INSERT_KEYS = 65_536


@dataclass(frozen=True)
class Stream:
    """Keys of a table's batches.

    Attributes:
        name: where they are from.
        batches: int64 [N] each, in order.
        frequencies: distinct keys of the whole table, most frequent first, and the frequency of
            each: counted over all batches, or expected.
    """

    name: str
    batches: list[Ids]
    frequencies: tuple[Ids, npt.NDArray[np.float64]]

    @classmethod
    def counted(cls, name: str, batches: list[Ids]) -> Stream:
        """Returns a stream whose table has exactly the keys of its batches."""
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
    """Yields the streams of the shared data that exist; the keys of a batch by column."""
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


def filled_table(stream: Stream, policy: str, slots: int) -> Table:
    """Returns a table with all rows of a stream and a cache that has seen none of its batches."""
    kind = "lru" if policy == "lru" else "lfu"
    cache = hotrow.Cache(rows=slots, policy=kind)  # type: ignore[arg-type]
    table = Table(hotrow.TableConfig("t", 4, optimizer=hotrow.SGD(0.1), cache=cache), seed=0)
    keys, frequencies = stream.frequencies
    # In an order independent of the frequencies.
    mixed = np.random.default_rng(3).permutation(keys)
    for first in range(0, len(mixed), INSERT_KEYS):
        table.lookup(mixed[first : first + INSERT_KEYS], insert=True)
    if policy.endswith("warmed up"):
        counts = np.maximum(1e6 * frequencies / frequencies.sum(), 1).astype(np.uint32)
        table.warm_up(keys, counts, 1.0)
    return table


def hits_of_table(stream: Stream, policy: str, slots: int) -> tuple[float, float, int]:
    """Returns hit rates by lookups and by unique rows, and the number of slots."""
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
    """Returns hit rates of a cache that always holds the most frequent rows."""
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
