"""What would a step of the tables cost on 8 and on 64 GPUs? A model, not a measurement.

Tables split by rows, each GPU with `--batch` samples (and, below, `--global-batch` split over all),
one key a sample and table, Zipf(1.05). The model draws keys and counts the distinct ones, at home
and at their owners; bytes follow as `benchmarks/sharding.py` counts them. A stage's time is its
bytes over a bandwidth:

    memory    of an H100, 3.35 TB/s. Of that a lookup gets 61 %, an update 46 %: what FBGEMM's
              tables get there by DynamicEmb's published metrics (1.049 M lookups, 350,000
              distinct, dim 128: 0.35 ms forward, 0.61 ms backward with SGD)
    NVLink    between 8 GPUs: 450 GB/s each way, of which an all-to-all gets 75 %
    network   between nodes of 8: 400 Gb/s for each GPU, of which it gets 85 %
    a start   of an all-to-all: 25 us among 8, 100 us among 64
    PCIe      rows that are not on the GPU, in and out, weights and state: 25 GB/s each way, for
              rows at random in host memory; `--missing` is their share of an owner's rows
    lagging   `--saved` of the bytes of rows and gradients stay at home with bounded staleness
              (`benchmarks/staleness.py` counts them)

Without prefetching stages run one after the other. With `prefetch`, distinct keys, keys and missing
rows of the next batch travel while a batch is trained, so they are free until memory, network or
PCIe is full. Dense layers are left out.

    python benchmarks/scaling_model.py [--dim 128] [--missing 0.1] [--json F]
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import click
import numpy as np
from peers.workload import hash_keys, zipf_ranks

FEATURES = 26
FLOAT = 4
KEY_BYTES = 9  # and how often it appears
DISTINCT_BYTES = 40  # a key is read, hashed into a table of 16 bytes, and its place written
STAGES = ("distinct", "keys", "missing", "lookup", "rows", "pool", "sum", "gradients", "update")
PREFETCHED = ("distinct", "keys", "missing")
LINKS = {
    "memory": ("distinct", "lookup", "pool", "sum", "update"),
    "network": ("keys", "rows", "gradients"),
    "PCIe": ("missing",),
}


@dataclass(frozen=True)
class Volumes:
    """The volumes of one rank and step, all tables together.

    Attributes:
        keys: looked up. distinct: of them. owned: distinct ones that all ranks request from it.
    """

    keys: int
    distinct: float
    owned: float


def drawn(rows: int, batch: int, ranks: int, seed: int = 3) -> Volumes:
    """Returns the volumes of a rank with `batch` samples, of tables with `rows` rows."""
    rng = np.random.default_rng(seed)
    keys = hash_keys(zipf_ranks(rng, rows, batch * ranks))
    home = np.mean([len(np.unique(part)) for part in keys.reshape(ranks, batch)])
    owned = len(np.unique(keys)) / ranks
    return Volumes(FEATURES * batch, float(FEATURES * home), FEATURES * owned)


def stages(
    volumes: Volumes, ranks: int, dim: int, missing: float, saved: float
) -> dict[str, float]:
    """Returns milliseconds of each stage on `ranks` GPUs."""
    read, write = 0.61 * 3.35e9, 0.46 * 3.35e9  # bytes a millisecond
    nvlink, network, pcie = 0.75 * 450e6, 0.85 * 50e6, 25e6
    row = FLOAT * dim

    def exchanged(count: float, size: float) -> float:
        if ranks == 1:
            return 0.0
        beyond = max(0, ranks - 8) / ranks  # to other nodes
        near = (min(ranks, 8) - 1) / ranks
        sent = count * size
        return (0.025 if ranks <= 8 else 0.1) + max(sent * near / nvlink, sent * beyond / network)

    distinct, owned = volumes.distinct, volumes.owned
    on_ranks = ranks > 1
    return {
        "distinct": DISTINCT_BYTES * volumes.keys / write,
        "keys": exchanged(distinct, KEY_BYTES),
        "missing": missing * owned * 2 * row / pcie,
        "lookup": (owned + distinct * on_ranks) * row / read,
        "rows": exchanged(distinct * (1 - saved), row),
        "pool": (distinct * on_ranks + volumes.keys) * row / read,
        "sum": (volumes.keys + distinct * on_ranks) * row / write,
        "gradients": exchanged(distinct * (1 - saved), row),
        "update": (distinct * on_ranks + 4 * owned) * row / write,
    }


@click.command()
@click.option("--dim", default=128)
@click.option("--batch", default=8192, help="Of each GPU.")
@click.option("--global-batch", default=65536, help="Of all GPUs, in the second half.")
@click.option("--rows", default=10_000_000, help="Of each of the 26 tables.")
@click.option("--missing", default=0.1, help="Share of an owner's rows that are in host memory.")
@click.option("--saved", default=0.0, help="Share of row bytes that staleness saves.")
@click.option("--json", "json_file", type=click.Path(path_type=Path))
def main(
    dim: int,
    batch: int,
    global_batch: int,
    rows: int,
    missing: float,
    saved: float,
    json_file: Path | None,
) -> None:
    """Prints the model."""
    case = (
        f"26 tables of {rows:,} rows, dim {dim}, Adagrad, {missing:.0%} missing, {saved:.0%} saved"
    )
    print(f"{case}; ms, modelled")
    print(
        f"{'GPUs':>4} {'batch':>7} {'distinct':>8}"
        + "".join(f"{stage:>10}" for stage in STAGES)
        + f"{'step':>8}{'prefetch':>9} {'M samples/s':>12} {'of N':>6}"
    )
    results = []
    for kind, cases in (
        ("a GPU", [(1, batch), (8, batch), (64, batch)]),
        ("global", [(1, global_batch), (8, global_batch // 8), (64, global_batch // 64)]),
    ):
        base = 0.0
        for ranks, own in cases:
            volumes = drawn(rows, own, ranks)
            parts = stages(volumes, ranks, dim, missing, saved)
            step = sum(parts.values())
            prefetched = max(
                sum(ms for stage, ms in parts.items() if stage not in PREFETCHED),
                *(sum(parts[stage] for stage in of_link) for of_link in LINKS.values()),
            )
            speed = ranks * own / prefetched / 1e3
            base = base or speed
            print(
                f"{ranks:4} {own:7,} {volumes.distinct / volumes.keys:8.3f}"
                + "".join(f"{parts[stage]:10.3f}" for stage in STAGES)
                + f"{step:8.2f}{prefetched:9.2f} {speed:12.2f} {speed / base / ranks:6.2f}"
            )
            results += [
                {"case": f"{ranks} GPUs, {kind} batch", "metric": name, "value": ms, "unit": "ms"}
                for name, ms in (*parts.items(), ("step", step), ("step, prefetch", prefetched))
            ]
    if json_file is not None:
        conditions = {"case": case, "kind": "model"}
        json_file.write_text(json.dumps({"conditions": conditions, "results": results}, indent=2))


if __name__ == "__main__":
    main()
