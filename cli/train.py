"""`platform train`: trains a model into a run directory."""

from __future__ import annotations

import contextlib
import json
import os
from pathlib import Path
from typing import TYPE_CHECKING

import click

from hotrow.cli.invocation import Invocation
from hotrow.cli.launcher import launch
from hotrow.cli.rank_process import started_ranks, this_rank
from hotrow.cli.store_flags import store_flags, take_store_access
from hotrow.config import load_config
from hotrow.errors import InvalidArgumentError
from hotrow.trainer.run_directory import default_run_directory, newest_run_directory

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hotrow.trainer.table_metrics import Metrics
    from hotrow.trainer.train_result import TrainResult

_ONEDNN = "TF_ENABLE_ONEDNN_OPTS"


@click.command(name="train")
@click.argument("config", type=click.Path(path_type=Path), metavar="CONFIG.yaml")
@click.option(
    "--set",
    "overrides",
    multiple=True,
    metavar="A.B=VALUE",
    help="Replace a value of the configuration; may be repeated. The value is YAML.",
)
@click.option(
    "--run-dir",
    type=click.Path(file_okay=False, path_type=Path),
    help="Where the run goes.  [default: runs/<name>-<time>]",
)
@click.option(
    "--resume",
    is_flag=True,
    help="Continue the run in --run-dir, or the newest of this name, from its last checkpoint.",
)
@click.option(
    "--from",
    "start_from",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="RUN_DIR",
    help="Start a new run from the tables and weights of this one, or of one checkpoint of it.",
)
@click.option(
    "--force",
    is_flag=True,
    help="With --from: drop the tables and weights that do not fit the configuration.",
)
@click.option(
    "--workers",
    type=click.IntRange(min=1),
    help="Train with N processes (--set parallel.workers=N).",
)
@click.option(
    "--online",
    is_flag=True,
    help="Train on the events of online.source as they come, and publish to running servers.",
)
@store_flags
@click.option(
    "--json",
    "json_file",
    type=click.Path(dir_okay=False, path_type=Path, allow_dash=True),
    help="Write the result to a file as JSON; - is standard output.",
)
def command(
    config: Path,
    overrides: tuple[str, ...],
    run_dir: Path | None,
    resume: bool,
    start_from: Path | None,
    force: bool,
    workers: int | None,
    online: bool,
    json_file: Path | None,
    **flags: str,
) -> None:
    """Train a model as CONFIG.yaml says.

    The run directory gets the configuration as resolved, metrics (metrics.jsonl, and events/ for
    TensorBoard) and checkpoints. Ctrl-C writes a checkpoint; --resume continues from it, bit for
    bit as if nothing had happened.

    \b
    Examples:
      platform train configs/criteo.yaml
      platform train configs/criteo.yaml --set train.epochs=2 --run-dir runs/two
      platform train configs/criteo.yaml --run-dir runs/two --resume
      platform train configs/criteo.yaml --from runs/two --set data.train=day2.tsv
      platform train configs/criteo.yaml --workers 4
      mpiexec -n 4 platform train configs/criteo.yaml
      platform train configs/clicks.yaml --online --from runs/two
    """  # noqa: D301 (click needs the character itself)
    access = take_store_access(flags)
    if json_file is not None and not json_file.parent.is_dir():
        raise InvalidArgumentError(f"--json {json_file}: no such directory: {json_file.parent}")
    if resume and start_from is not None:
        raise InvalidArgumentError(
            f"--from {start_from} with --resume: --from starts a new run, --resume continues one; "
            "leave one of them out"
        )
    if force and start_from is None:
        raise InvalidArgumentError("--force without --from: there is nothing to drop; leave it out")
    started = started_ranks()
    if workers is None and started is not None:
        workers = started
    if workers is not None:
        overrides = (*overrides, f"parallel.workers={workers}")
    run_config = load_config(config, overrides)
    if resume and run_dir is None:
        run_dir = newest_run_directory(run_config.name)
    workers = run_config.parallel.workers
    if started is None and workers > 1:
        arguments = list(click.get_current_context().ensure_object(Invocation).arguments)
        if run_dir is None:
            run_dir = default_run_directory(run_config.name)
        arguments += ["--run-dir", str(run_dir)]
        raise SystemExit(launch(workers, arguments, run_dir))
    if started is not None and workers != started:
        raise InvalidArgumentError(
            f"parallel.workers is {workers}, but MPI started {started} ranks; leave --workers out "
            "under mpiexec, or mpiexec"
        )
    # "gpu:1" already names its GPU.
    own_gpu = ":" not in run_config.cache.device
    with _for_any_batch_size(online), this_rank(run_config.parallel, own_gpu) as ranks:
        from hotrow.trainer.loop import train

        server_scores = None
        if online and run_config.online.canary_servers and ranks.is_first:
            from hotrow.cli.canary_scores import ServedCanary

            server_scores = ServedCanary(run_config)
        result = train(
            run_config,
            run_dir,
            resume,
            ranks,
            start_from=start_from,
            force=force,
            online=online,
            access=access,
            server_scores=server_scores,
        )
        if ranks.is_first:
            _report(result, json_file)


@contextlib.contextmanager
def _for_any_batch_size(online: bool) -> Iterator[None]:
    """Keeps oneDNN out of online training, unless the environment asks for it.

    oneDNN compiles code for each size of batch and keeps it, and batches of a stream have any size:
    twice the CPU time of a dense layer, and 130 MB for three of them.
    """
    if not online or _ONEDNN in os.environ:
        yield
        return
    os.environ[_ONEDNN] = "0"  # TensorFlow reads it once, at its first op
    try:
        yield
    finally:
        del os.environ[_ONEDNN]


def _report(result: TrainResult, json_file: Path | None) -> None:
    if json_file is not None:
        text = json.dumps(result.as_dict(), indent=2) + "\n"
        if str(json_file) == "-":
            click.echo(text, nl=False)
        else:
            json_file.write_text(text, encoding="utf-8")
    if json_file is None or str(json_file) != "-":
        click.echo(_summary(result))


def _summary(result: TrainResult) -> str:
    lines = [
        f"{_steps(result)}, {result.samples_per_second:,.0f} samples/s, "
        f"{sum(result.rows.values()):,} rows in {len(result.rows)} tables",
    ]
    if result.ranks > 1:
        lines.append(f"{result.ranks} ranks: {_sent(result)}")
    lines += [f"table {name}: {_of_table(metrics)}" for name, metrics in result.tables.items()]
    if result.valid is not None:
        lines.append(
            f"validation: auc {result.valid.auc:.4f}  logloss {result.valid.logloss:.4f}  "
            f"calibration {result.valid.calibration:.3f}"
        )
    if result.best is not None:
        lines.append(
            f"best checkpoint: step {result.best.step:,}, {result.best.metric} "
            f"{result.best.value:.4f}"
        )
    lines.append(f"run directory: {result.run_dir}")
    return "\n".join(lines)


def _steps(result: TrainResult) -> str:
    if not result.first_step:
        return f"{result.steps:,} steps"
    return f"{result.steps - result.first_step:,} steps after {result.first_step:,}"


def _sent(result: TrainResult) -> str:
    sent = sum(stage["bytes"] for stage in result.stages.values())
    seconds = sum(stage["seconds"] for stage in result.stages.values())
    return f"{sent / 2**20:,.1f} MiB sent to each other, {seconds:.1f} s each in lookups and sums"


def _of_table(metrics: Metrics) -> str:
    parts = [f"{metrics['rows']:,} rows"]
    if "admitted" in metrics:
        parts += [
            f"{metrics['admitted']:,} keys admitted",
            f"{metrics['waiting']:,} waiting",
            f"{metrics['expired']:,} expired",
        ]
    if "nonfinite_updates" in metrics:
        parts.append(f"{metrics['nonfinite_updates']:,} updates left out: not finite")
    if "cache_slots" in metrics:
        parts += [
            f"cache of {metrics['cache_slots']:,} with hit rate {metrics['cache_hit_rate']:.1%}",
            f"{metrics['cache_rows_prefetched']:,} rows prefetched",
            f"stall {metrics['cache_stall_ms']:.2f} ms a step",
        ]
    return ", ".join(parts)
