"""`platform rollback`: makes servers go back to an earlier version or incremental export."""

from __future__ import annotations

import json
import re
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from hotrow.cli.failures import EXIT_NOT_TAKEN
from hotrow.cli.progress_lines import ProgressLines
from hotrow.cli.store_flags import store_flags, take_store_access
from hotrow.cli.trainer_client import TrainerAccess, TrainerClient
from hotrow.cli.trainer_flags import take_trainer_access, trainer_flags
from hotrow.errors import InvalidArgumentError, NotFoundError
from hotrow.rollback import roll_back, roll_back_cuts
from hotrow.version_folder import set_aside_in, versions_in

if TYPE_CHECKING:
    from hotrow.store.access import StoreAccess
    from hotrow.store.cuts import CutRecord

_WAIT_SECONDS = 60.0
_CUT = re.compile(r"[0-9a-f]{16}")


@click.command("rollback")
@click.argument("base", metavar="BASE_DIR", type=click.Path(path_type=Path, file_okay=False))
@click.option("--name", required=True, help="Name of the model: its versions are in BASE_DIR/NAME.")
@click.option(
    "--to",
    "target",
    required=True,
    metavar="VERSION|CUT",
    help="A version, or the 16 digits of an incremental export of the newest version, as `platform "
    "versions` shows them.",
)
@click.option("--store", metavar="URL", help="Another URL of the version's store.")
@click.option(
    "--wait_seconds",
    type=click.FloatRange(min=0),
    default=_WAIT_SECONDS,
    show_default=True,
    help="How long to wait until all servers have gone back; exit code 3 if they have not.",
)
@click.option(
    "--json",
    "json_path",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Also write the outcome as JSON.",
)
@trainer_flags
@store_flags
def command(
    base: Path,
    name: str,
    target: str,
    store: str | None,
    wait_seconds: float,
    json_path: Path | None,
    **access: Any,
) -> None:
    """Make servers of a model go back to what they showed before, without a failed request.

    To a VERSION: newer versions are set aside (renamed to N.rolled_back), so that servers which
    watch BASE_DIR/NAME load the older one, route to it, and unload the newer one. Nothing is
    deleted: a later rollback to N brings N back. Servers with `specific` versions in their
    configuration follow that, not this command.

    To a CUT: the rows and weights that newer incremental exports replaced are published as a new
    one. The store keeps them for the newest exports (export.undo_cuts). While a trainer publishes
    the model by itself (`platform train --online`), it does this, and publishes nothing more until
    `platform resume`.

    \b
    Examples:
      platform rollback models --name shop --to 41
      platform rollback models --name shop --to 0000020000000001
    """  # noqa: D301 (click wants a real \b)
    trainer = take_trainer_access(access)
    entry = take_store_access(access)
    if json_path is not None and not json_path.absolute().parent.is_dir():
        raise InvalidArgumentError(f"--json {json_path}: its folder does not exist; make it first")
    folder = base / name
    seen = versions_in(folder)
    if not seen and not set_aside_in(folder):
        raise NotFoundError(f"{folder} has no versions; BASE_DIR/NAME is the folder of a model's")
    if target.isdecimal() and int(target) in {*seen, *set_aside_in(folder)}:
        facts, behind = _to_version(folder, int(target), entry, store, wait_seconds)
    elif _CUT.fullmatch(target) and seen:
        facts, behind = _to_cut(seen[max(seen)], target, entry, store, wait_seconds, trainer)
    else:
        there = ", ".join(map(str, sorted({*seen, *set_aside_in(folder)})))
        raise InvalidArgumentError(
            f"--to {target}: neither a version of {folder} ({there}) nor the 16 hexadecimal digits "
            f"of a cut; `platform versions {folder}` lists both"
        )
    if json_path is not None:
        json_path.write_text(json.dumps(facts, indent=1) + "\n")
    if behind:
        click.echo(
            f"Not all servers have gone back within {wait_seconds:g} s: {', '.join(behind)}; they "
            "do as soon as they can, and their logs say what keeps them",
            err=True,
        )
        raise SystemExit(EXIT_NOT_TAKEN)


def _to_version(
    folder: Path, version: int, access: StoreAccess, store: str | None, wait_seconds: float
) -> tuple[dict[str, Any], list[str]]:
    done = roll_back(
        folder, version, access, store=store, wait_seconds=wait_seconds, report=ProgressLines()
    )
    if done.live_before == version:
        click.echo(
            f"{folder.name} version {version} is the newest one already; to undo incremental "
            f"exports of it, give --to a cut that `platform versions {folder}` lists"
        )
        return done.as_dict(), []
    aside = f"; set aside: {', '.join(map(str, done.set_aside))}" if done.set_aside else ""
    line = f"{folder.name} version {version} is the newest one{aside}"
    if done.seconds is None:
        line += "; servers load it at their next poll"
    elif not done.waiting_for:
        line += f"; all servers have left the newer ones after {done.seconds:.1f} s"
    click.echo(line)
    return done.as_dict(), [reader.holder for reader in done.waiting_for]


def _to_cut(
    version: Path,
    cut: str,
    access: StoreAccess,
    store: str | None,
    wait_seconds: float,
    trainer: TrainerAccess,
) -> tuple[dict[str, Any], list[str]]:
    began = time.monotonic()
    asked = ""

    def ask_trainer(address: str, to: str) -> str:
        nonlocal asked
        asked = address
        with TrainerClient(address, trainer) as client:
            return client.rollback(to)

    def committed(new: CutRecord) -> None:
        click.echo(
            f"Committed step {new.step} again as cut {new.version:016x}: {new.rows} rows changed, "
            f"{new.removed} removed; servers take it now"
        )

    outcome = roll_back_cuts(
        version,
        int(cut, 16),
        access,
        store=store,
        wait_seconds=wait_seconds,
        report=ProgressLines(),
        committed=committed,
        ask_trainer=ask_trainer,
    )
    taken_after = time.monotonic() - began
    assert outcome.cut is not None  # it was committed
    behind = [reader.holder for reader in outcome.waiting_for]
    name = f"{version.parent.name} version {version.name}"
    if not behind:
        click.echo(
            f"{name} shows step {outcome.cut.step}, as cut {cut}; all servers have taken it after "
            f"{taken_after:.1f} s"
        )
    if asked:
        click.echo(f"The trainer at {asked} publishes nothing more until `platform resume {asked}`")
    facts = {
        "directory": str(version),
        "version": int(version.name),
        "to": cut,
        "cut": f"{outcome.cut.version:016x}",
        "step": outcome.cut.step,
        "seconds": None if behind else taken_after,
        "waiting_for": behind,
        "held_by": [reader.holder for reader in outcome.held_by],
        "trainer": asked or None,
    }
    return facts, behind
