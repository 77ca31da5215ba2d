"""A full export of a checkpoint, in a process of its own beside the training."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from hotrow.errors import FailedPreconditionError, NotFoundError
from hotrow.norms import GateError
from hotrow.store.access import PASSWORD_VARIABLE, StoreAccess
from hotrow.trainer.checkpoint.stored import name_of
from hotrow.trainer.run_directory import CHECKPOINTS

_LAST_LINES = 3
_OF_LAUNCHERS = ("PMI_", "PMIX_", "MPI_", "OMPI_", "HYDRA_", "HYDI_")
"""Prefixes of variables that would make the export one more rank."""
_GROWTH = 2.0
"""For how many times its rows a table is laid out in the store."""


def export_base(
    run_dir: Path,
    step: int,
    force: bool,
    models: Path,
    model: str,
    store: str,
    shards: int,
    access: StoreAccess,
    lender: str,
) -> None:
    """Exports the checkpoint of a step as a new version, with its rows in a store.

    It needs memory for the rows once more.

    Args:
        run_dir: the run directory.
        step: step of one of its checkpoints.
        force: whether to export it whatever the gates say.
        models: folder of all models.
        model: name of the model.
        store: URL of the store.
        shards: virtual shards of the rows.
        access: credentials.
        lender: the holder of the export lock, which lends it (`ExportLock.lend`).

    Raises:
        NotFoundError: the checkpoint does not exist any more.
        GateError: a gate refuses it.
        FailedPreconditionError: the export failed; the message has its last lines.
    """
    if not (run_dir / CHECKPOINTS / name_of(step)).exists():
        raise NotFoundError(f"{run_dir} has no checkpoint of step {step} any more")
    command = [sys.executable, "-m", "hotrow.cli.main", "export", str(run_dir)]
    command += ["--to", str(models), "--name", model, "--store", store, "--step", str(step)]
    command += ["--store_shards", str(shards), "--store_growth", f"{_GROWTH:g}"]
    command += ["--lender", lender]
    command += ["--force"] if force else []
    for flag, value in (
        ("--store_user", access.username),
        ("--store_ca", access.ca_file),
        ("--store_cert", access.cert_file),
        ("--store_key", access.key_file),
    ):
        if value:
            command += [flag, value]
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith(_OF_LAUNCHERS)
    }
    if access.password:
        environment[PASSWORD_VARIABLE] = access.password
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode == 0:
        return
    lines = (done.stderr.strip() or done.stdout.strip()).splitlines()[-_LAST_LINES:]
    text = " ".join(lines).removeprefix("Error: ")
    refused = "max_norm_ratio" in text or "not finite" in text
    kind = GateError if refused else FailedPreconditionError
    raise kind(f"the full export of step {step} failed with exit code {done.returncode}: {text}")
