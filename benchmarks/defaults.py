"""Do the defaults learn? AUC of table optimizers on seven data sets, by batch size and model.

    python benchmarks/defaults.py --results FILE.jsonl [--stage NAME] [--json FILE]

Trains as `platform train` does, in this process, with one thread of TensorFlow. Each line of
FILE.jsonl is one run; a call goes on where the last one stopped. The table shows, for each data
set, model and batch size, how far the validation AUC after the last epoch is below that of the best
choice.

    criteo      the first 8,000 rows of Criteo head10k; the other 2,000 validate
    adult       Adult census, its first 26,048 rows; the others validate
    frappe      every third row of Frappe_x1's train and valid files
    globo       40,000 clicks of Globo.com in order of time, each with an article that was not
                clicked, drawn from the 2,000 clicks before; the last fifth validates
    generated   60,000 rows of `platform data generate`; 20,000 validate
    ratings     generated: 100,000 ratings of 943 users and 1,682 items by latent factors, as in
                MovieLens-100K; a fifth validates
    installs    generated: 100,000 clicks with six integer columns, 1 % of them positive, as in
                TalkingData; a fifth validates
"""

from __future__ import annotations

import gzip
import json
import os
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import click
import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq

SHARED = Path(os.environ.get("SHARED") or Path(__file__).parents[2] / "shared") / "data"
SPARSE = [f"C{i}" for i in range(1, 27)]
DENSE = [f"I{i}" for i in range(1, 14)]
DIM, EPOCHS, BELOW = 16, 3, 0.003
Settings = dict[str, Any]
Options = Mapping[str, Any]

# The choices to compare, the defaults of `platform train` among them.
CHOICES: dict[str, Options] = {
    f"adagrad {rate:g} from {start:g}": {
        "optimizer": "adagrad", "learning_rate": rate, "initial_accumulator": start,
        "epsilon": min(1e-7, start / 100),
    }
    for rate, start in (
        (0.05, 0.1), (0.05, 1e-5), (0.05, 1e-6), (0.05, 1e-7), (0.05, 1e-10), (0.02, 1e-6),
        (0.02, 1e-10), (0.01, 1e-10), (0.1, 1e-5), (0.1, 1e-6),
    )
}  # fmt: skip
CHOICES |= {
    f"adam {rate:g}": {"optimizer": "adam", "learning_rate": rate} for rate in (0.001, 0.003, 0.01)
}
# Rows that start larger: the product of two of them grows faster.
CHOICES |= {
    f"{name}, uniform {scale:g}": {**CHOICES[name], "initializer": {"uniform": scale}}
    for name in ("adagrad 0.05 from 1e-05", "adagrad 0.05 from 1e-06", "adagrad 0.1 from 1e-06")
    for scale in (0.01, 0.1, 0.25)
}
STAGES: dict[str, tuple[list[str], list[int], int]] = {
    # models, batch sizes, seeds
    "optimizers": (["dlrm", "wide_deep"], [1024], 1),
    "batches": (["dlrm", "wide_deep"], [256, 8192], 1),
    "logistic": (["logistic"], [256, 1024, 8192], 1),
    "seeds": (["dlrm", "wide_deep"], [1024], 3),
}


def criteo_features() -> Settings:
    """Returns the features of a file in Criteo's format."""
    return {
        "dense": {"columns": DENSE, "transform": "log"},
        "sparse": {"columns": SPARSE, "dim": DIM},
    }


def criteo(folder: Path) -> Settings:
    """Writes Criteo head10k in two parts."""
    with gzip.open(SHARED / "criteo_head10k/criteo_head10k.tsv.gz", "rt") as file:
        lines = file.readlines()
    (folder / "train.tsv").write_text("".join(lines[:8000]))
    (folder / "valid.tsv").write_text("".join(lines[8000:]))
    return {"data": {"format": "criteo", "train": "train.tsv", "valid": "valid.tsv"},
            "features": criteo_features()}  # fmt: skip


def adult(folder: Path) -> Settings:
    """Writes Adult census in two parts."""
    with gzip.open(SHARED / "adult_census/adult.data.gz", "rt") as file:
        lines = [line for line in file if line.strip()]
    (folder / "train.csv").write_text("".join(lines[:26_048]))
    (folder / "valid.csv").write_text("".join(lines[26_048:]))
    names = [
        "age", "workclass", "fnlwgt", "education", "education_num", "marital_status", "occupation",
        "relationship", "race", "sex", "capital_gain", "capital_loss", "hours_per_week",
        "native_country", "income",
    ]  # fmt: skip
    dense = ["age", "education_num", "capital_gain", "capital_loss", "hours_per_week"]
    sparse = [n for n in names if n not in (*dense, "fnlwgt", "income")]
    return {
        "data": {
            "format": "csv", "train": "train.csv", "valid": "valid.csv", "columns": names,
            "label": "income", "positive": ">50K",
        },
        "features": {"dense": {"columns": dense, "standardize": True},
                     "sparse": {"columns": sparse, "dim": DIM}},
    }  # fmt: skip


def frappe(folder: Path) -> Settings:
    """Writes every third row of Frappe_x1 as a Parquet file of its ten fields."""
    for name, source in (("train", "train_rebuilt"), ("valid", "valid")):
        with gzip.open(SHARED / f"frappe_x1/{source}.libsvm.gz", "rt") as file:
            rows = [line.split() for i, line in enumerate(file) if i % 3 == 0]
        columns = {"label": [int(float(row[0])) for row in rows]}
        for field in range(10):
            columns[f"f{field}"] = [int(row[1 + field].split(":")[0]) for row in rows]
        pq.write_table(pa.table(columns), folder / f"{name}.parquet")
    return integers([f"f{field}" for field in range(10)])


def integers(columns: list[str]) -> Settings:
    """Returns the settings of a Parquet file of integer keys."""
    return {
        "data": {"format": "csv", "train": "train.parquet", "valid": "valid.parquet"},
        "features": {"sparse": {"columns": columns, "dim": DIM, "hash": False}},
    }


def write_parts(folder: Path, columns: dict[str, np.ndarray]) -> None:
    """Writes four fifths of the rows to train.parquet, the last fifth to valid.parquet."""
    table = pa.table(columns)
    cut = len(table) * 4 // 5
    pq.write_table(table.slice(0, cut), folder / "train.parquet")
    pq.write_table(table.slice(cut), folder / "valid.parquet")


def take(batches: Iterable[pa.RecordBatch], rows: int) -> Iterator[pa.RecordBatch]:
    """Yields the first `rows` rows."""
    for batch in batches:
        yield batch.slice(0, rows)
        rows -= len(batch)
        if rows <= 0:
            return


def globo(folder: Path) -> Settings:
    """Writes clicks of Globo.com, and as many articles that were not clicked."""
    rng = np.random.default_rng(1)
    path = SHARED / "globo_news/clicks_sorted.csv.zst"
    with pa.csv.open_csv(pa.input_stream(str(path), compression="zstd")) as file:
        clicks = pa.Table.from_batches(take(file, 42_000))
    context = [
        "user_id", "click_environment", "click_deviceGroup", "click_os", "click_region",
        "click_referrer_type",
    ]  # fmt: skip
    article = clicks["click_article_id"].to_numpy()
    places = np.arange(2000, len(article))
    others = article[places - rng.integers(1, 2001, len(places))]
    columns = {name: np.repeat(clicks[name].to_numpy()[places], 2) for name in context}
    columns["article"] = np.stack([article[places], others], 1).ravel()
    columns["label"] = np.tile([1, 0], len(places))
    write_parts(folder, columns)
    return integers([*context, "article"])


def generated(folder: Path) -> Settings:
    """Writes rows of a known model in Criteo's format."""
    command = [
        sys.executable,
        "-m",
        "hotrow.cli.main",
        "data",
        "generate",
        str(folder / "train.tsv"),
    ]
    command += [
        "--rows",
        "60000",
        "--valid-rows",
        "20000",
        "--valid-out",
        str(folder / "valid.tsv"),
    ]
    subprocess.run(command, check=True, capture_output=True)
    return {"data": {"format": "criteo", "train": "train.tsv", "valid": "valid.tsv"},
            "features": criteo_features()}  # fmt: skip


def zipf(rng: np.random.Generator, keys: int, rows: int) -> np.ndarray:
    """Returns keys below `keys` of which the k-th is drawn in proportion to 1 / (k + 10)."""
    weights = 1 / (np.arange(keys) + 10)
    return rng.permutation(keys)[rng.choice(keys, rows, p=weights / weights.sum())]


def ratings(folder: Path) -> Settings:
    """Writes ratings by latent factors and biases."""
    rng, rows = np.random.default_rng(2), 100_000
    users, items = zipf(rng, 943, rows), zipf(rng, 1682, rows)
    user, item = rng.normal(0, 1, (943, 6)), rng.normal(0, 1, (1682, 6))
    logit = 0.45 * (user[users] * item[items]).sum(1)
    logit += rng.normal(0, 0.6, 943)[users] + rng.normal(0, 0.6, 1682)[items]
    label = rng.random(rows) < 1 / (1 + np.exp(-logit))
    columns = {"user": users, "item": items, "hour": rng.integers(0, 24, rows)}
    write_parts(folder, {**columns, "label": label.astype(np.int64)})
    return integers(["user", "item", "hour"])


def installs(folder: Path) -> Settings:
    """Writes clicks of which one in a hundred is followed by an install."""
    rng, rows = np.random.default_rng(3), 100_000
    sizes = {"ip": 20_000, "app": 400, "device": 900, "os": 150, "channel": 180, "hour": 24}
    columns = {name: zipf(rng, size, rows) for name, size in sizes.items()}
    scale = {"ip": 0.8, "app": 1.5, "device": 0.5, "os": 0.4, "channel": 1.0, "hour": 0.2}
    logit = np.full(rows, -6.6)
    for name, keys in columns.items():
        logit += rng.normal(0, scale[name], sizes[name])[keys]
    label = rng.random(rows) < 1 / (1 + np.exp(-logit))
    write_parts(folder, {**columns, "label": label.astype(np.int64)})
    return integers(list(sizes))


DATA: dict[str, Callable[[Path], Settings]] = {
    "criteo": criteo, "adult": adult, "frappe": frappe, "globo": globo, "generated": generated,
    "ratings": ratings, "installs": installs,
}  # fmt: skip


def settings_of(arch: str, data: Settings) -> Settings:
    """Returns the section `model`, with widths that a newcomer would write."""
    if arch == "logistic":
        return {"arch": "logistic"}
    if arch == "wide_deep":
        return {"arch": "wide_deep", "hidden": [64, 32]}
    bottom = {"bottom": [32, DIM]} if data["features"].get("dense") else {}
    return {"arch": "dlrm", "top": [64, 32], **bottom}


def run(folder: Path, data: Settings, arch: str, batch: int, seed: int, choice: str) -> list[float]:
    """Returns the validation AUC after each epoch."""
    from hotrow.config import load_config
    from hotrow.trainer.loop import train
    from hotrow.trainer.run_directory import read_metrics

    settings = {
        "name": "defaults", "seed": seed, "model": settings_of(arch, data),
        **data, "data": {**data["data"], "batch_size": batch},
        "tables": {"default": CHOICES[choice]} if choice != "default" else {},
        "train": {"epochs": EPOCHS, "deterministic": False},
        "checkpoint": {"keep": 1, "asynchronous": False},
    }  # fmt: skip
    path = folder / "config.json"  # JSON is YAML
    path.write_text(json.dumps(settings))
    with tempfile.TemporaryDirectory(dir=folder) as run_dir:
        train(load_config(path), Path(run_dir) / "run")
        records = list(read_metrics(Path(run_dir) / "run"))
    return [r["auc"] for r in records if r["kind"] == "valid"]


def cases(stage: str) -> Iterator[tuple[str, str, int, int]]:
    """Yields data set, model, batch size and seed of a stage."""
    archs, batches, seeds = STAGES[stage]
    for name in DATA:
        for arch in archs:
            for batch in batches:
                for seed in range(1, seeds + 1):
                    yield name, arch, batch, seed


def show(records: list[dict[str, Any]], choices: list[str]) -> list[dict[str, Any]]:
    """Prints, by case, how far each choice stays below the best; returns rows for --json."""
    means: dict[tuple[str, str, int], dict[str, float]] = {}
    for r in records:
        case = means.setdefault((r["data"], r["arch"], r["batch"]), {})
        same = [o["auc"][-1] for o in records if (o["data"], o["arch"], o["batch"], o["choice"])
                == (r["data"], r["arch"], r["batch"], r["choice"])]  # fmt: skip
        case[r["choice"]] = statistics.fmean(same)
    rows = []
    print(f"{'':>34}   best  " + "".join(f"{name:>24}" for name in choices))
    for (data, arch, batch), of in sorted(means.items()):
        best = max(of.values())
        cells = "".join(f"{of[c] - best:>+24.4f}" if c in of else f"{'':>24}" for c in choices)
        print(f"{data:>12} {arch:>12} {batch:>8}  {best:.4f} {cells}")
        for choice, auc in of.items():
            name = f"{data} {arch} {batch} {choice}"
            value = {"value": auc, "unit": "1", "baseline": "best", "ratio": auc / best}
            rows.append({"case": name, "metric": "valid_auc", **value})
    for label, pick in (("median", statistics.median), ("worst", min)):
        cells = ""
        for c in choices:
            gaps = [of[c] - max(of.values()) for of in means.values() if c in of]
            cells += f"{pick(gaps):>+24.4f}" if gaps else f"{'':>24}"
        print(f"{label:>34}          {cells}")
    return rows


@click.command()
@click.option("--results", type=click.Path(path_type=Path), required=True)
@click.option("--stage", type=click.Choice(list(STAGES)), default="optimizers")
@click.option("--choice", "choices", multiple=True, help="Only these.  [default: all]")
@click.option("--data", "only", multiple=True, type=click.Choice(list(DATA)))
@click.option("--show-only", is_flag=True)
@click.option("--json", "json_path", type=click.Path(path_type=Path))
def main(
    results: Path, stage: str, choices: tuple[str, ...], only: tuple[str, ...], show_only: bool,
    json_path: Path | None,
) -> None:  # fmt: skip
    """Runs what is missing in the results, and prints the table."""
    chosen = list(choices) or list(CHOICES)
    print(f"{platform.machine()}, 1 thread; {EPOCHS} epochs, dim {DIM}, AUC after the last one")
    records = [json.loads(line) for line in results.open()] if results.exists() else []
    if not show_only:
        records += measure(results, records, stage, chosen, only)
    rows = show(records, [*chosen, "default"])
    if json_path is not None:
        json_path.write_text(
            json.dumps({"conditions": {"epochs": EPOCHS, "dim": DIM}, "results": rows})
        )


def measure(
    results: Path,
    known: list[dict[str, Any]],
    stage: str,
    choices: list[str],
    only: tuple[str, ...],
) -> list[dict[str, Any]]:
    """Runs the trainings missing in the file of results, appends them and returns their records."""
    import tensorflow as tf

    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    done = {(r["data"], r["arch"], r["batch"], r["seed"], r["choice"]) for r in known}
    new = []
    root = Path(tempfile.mkdtemp(prefix="defaults-"))
    settings: dict[str, Settings] = {}
    try:
        for name, arch, batch, seed in cases(stage):
            for choice in choices:
                if (name, arch, batch, seed, choice) in done or (only and name not in only):
                    continue
                folder = root / name
                if name not in settings:
                    folder.mkdir()
                    settings[name] = DATA[name](folder)
                start = time.monotonic()
                auc = run(folder, settings[name], arch, batch, seed, choice)
                tf.keras.backend.clear_session()
                case = {"data": name, "arch": arch, "batch": batch, "seed": seed, "choice": choice}
                record = {**case, "auc": auc, "seconds": round(time.monotonic() - start, 1)}
                new.append(record)
                with results.open("a") as file:
                    file.write(json.dumps(record) + "\n")
    finally:
        shutil.rmtree(root)
    return new


if __name__ == "__main__":
    main()
