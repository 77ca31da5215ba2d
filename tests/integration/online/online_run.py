"""Trainers that learn online, as processes, and what they leave in files and stores."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from children import start_child
from prometheus_client.parser import text_string_to_metric_families
from waiting import wait_until

from hotrow.admin.run_address import read_run_address
from hotrow.errors import NotFoundError
from hotrow.manifest import read_manifest
from hotrow.store import open_store
from hotrow.store.cut_blocks import TOMBSTONE
from hotrow.store.cuts import cuts_of, read_blocks
from hotrow.store.generations import Generations
from hotrow.store.spec import Generation
from hotrow.trainer.trained_run import load_run

PLATFORM = ("-m", "hotrow.cli.main")
CONFIG = """\
name: clicks
data: {{format: csv, train: history.csv, batch_size: {batch}, label: clicked}}
features:
  dense: {{columns: [price]}}
  sparse: {{columns: [user, item], dim: 4, hash: true}}
tables: {{default: {{optimizer: sgd, learning_rate: 0.1}}}}
model: {{arch: dlrm, bottom: [4], top: [4]}}
optimizer: {{name: sgd, learning_rate: 0.05}}
checkpoint: {{every_steps: {checkpoint_steps}, keep: 3}}
online:
  source: "{source}"
  time: time
  publish_seconds: {publish_seconds}
  frozen: false
"""


def click_rows(count: int, seed: int = 0, first: float = 1.7e9) -> list[dict[str, Any]]:
    """Returns events: users and items by Zipf, a label that depends on both."""
    rng = np.random.default_rng(seed)
    users, items = rng.zipf(1.3, count) % 500, rng.zipf(1.2, count) % 2000
    logits = ((users % 7) - 3) * ((items % 5) - 2) * 0.4
    clicked = rng.random(count) < 1 / (1 + np.exp(-logits))
    return [
        {
            "time": first + i * 0.01,
            "clicked": int(clicked[i]),
            "price": round(float(rng.random()), 4),
            "user": f"u{users[i]}",
            "item": f"i{items[i]}",
        }
        for i in range(count)
    ]


def write_history(folder: Path, rows: int = 300) -> None:
    """Writes the file of `data.train`, from which online training takes nothing but columns."""
    lines = ["clicked,price,user,item"]
    lines += [f"{r['clicked']},{r['price']},{r['user']},{r['item']}" for r in click_rows(rows, 9)]
    (folder / "history.csv").write_text("\n".join(lines) + "\n")


def write_recording(path: Path, rows: Iterable[dict[str, Any]]) -> None:
    """Writes events as a file that `replay:` reads."""
    lines = ["time,clicked,price,user,item"]
    lines += [f"{r['time']},{r['clicked']},{r['price']},{r['user']},{r['item']}" for r in rows]
    path.write_text("\n".join(lines) + "\n")


def append_events(path: Path, rows: Iterable[dict[str, Any]]) -> None:
    """Appends events to a file that `file:` reads."""
    with path.open("a") as file:
        file.write("".join(json.dumps(row) + "\n" for row in rows))


class Work:
    """A folder with a configuration, runs and published models.

    Args:
        folder: new.
        store: URL of the store; "": nothing is published.
        source: URL of the events.
        options: values of `CONFIG`.
    """

    def __init__(self, folder: Path, store: str, source: str, **options: Any) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder, self.store = folder, store
        self._started: list[subprocess.Popen[Any]] = []
        values = {"batch": 64, "checkpoint_steps": 10, "publish_seconds": 0.2} | options
        text = CONFIG.format(source=source, **values)
        if store:
            text += f"  models: {folder}/models\n  store: {store}\n"
        (folder / "clicks.yaml").write_text(text)
        write_history(folder)

    def configure(self, lines: str) -> None:
        """Adds lines to the section `online`."""
        with (self.folder / "clicks.yaml").open("a") as file:
            file.write(lines)

    def replace(self, before: str, after: str) -> None:
        """Replaces a text of the configuration."""
        path = self.folder / "clicks.yaml"
        path.write_text(path.read_text().replace(before, after))

    def start(
        self,
        *flags: str,
        run: str = "run",
        log: str = "log",
        program: Sequence[str] = PLATFORM,
        variables: Mapping[str, str] | None = None,
    ) -> subprocess.Popen[Any]:
        """Starts a trainer.

        Args:
            flags: of `platform train`.
            run: its run directory.
            log: file that gets its output.
            program: arguments of Python in place of those that run `platform`.
            variables: of the environment, beside those of this process.
        """
        command = [sys.executable, *program, "train", "clicks.yaml", "--online"]
        with (self.folder / log).open("a") as file:
            trainer = start_child(
                [*command, "--run-dir", run, *flags],
                cwd=self.folder,
                env={**_environment(), **(variables or {})},
                stdout=file,
                stderr=file,
            )
        self._started.append(trainer)
        return trainer

    def close(self) -> None:
        """Kills the trainers that still run."""
        for trainer in self._started:
            trainer.kill()
            trainer.wait()

    def train(self, *flags: str, run: str = "run", code: int = 0, seconds: float = 240) -> str:
        """Runs a trainer to its end and returns its log."""
        log = f"log-{len(list(self.folder.glob('log*')))}"
        process = self.start(*flags, run=run, log=log)
        assert process.wait(seconds) == code, self.log(log)
        return self.log(log)

    def command(self, *arguments: str, code: int = 0) -> str:
        """Runs `platform` and returns its output."""
        done = subprocess.run(
            [sys.executable, *PLATFORM, *arguments],
            cwd=self.folder,
            env=_environment(),
            check=False,
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout + done.stderr

    def stop(self, process: subprocess.Popen[Any], log: str = "log") -> None:
        """Ends a trainer by SIGTERM, which publishes its last state."""
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=120) == 128 + signal.SIGTERM, self.log(log)

    def log(self, name: str = "log") -> str:
        """Returns what a trainer wrote."""
        return (self.folder / name).read_text()

    def await_line(self, text: str, log: str = "log") -> None:
        """Waits until a trainer's log has a text."""
        wait_until(lambda: text in self.log(log), lambda: self.log(log), 120)

    def tables(self, run: str = "run") -> dict[str, dict[str, np.ndarray]]:
        """Returns keys, weights and counts of the newest checkpoint, by table, sorted by key."""
        found = {}
        for name, table in load_run(self.folder / run).model.tables().items():
            batches = list(table.export_batches())
            keys = np.concatenate([batch.keys for batch in batches])
            order = np.argsort(keys)
            found[name] = {
                "keys": keys[order],
                "weights": np.concatenate([batch.weights for batch in batches])[order],
                "counts": np.concatenate([batch.counts for batch in batches])[order],
            }
        return found

    def events(self, run: str = "run") -> int:
        """Returns how many events the newest checkpoint has."""
        return int((load_run(self.folder / run).position.online or {})["events"])

    def check_store(self, run: str = "run", gone: Mapping[str, np.ndarray] | None = None) -> None:
        """Compares all rows of the store with the newest checkpoint, bit for bit.

        Args:
            run: the run directory.
            gone: keys by table that neither may have a row of, but those that the checkpoint has.
        """
        tables = self.tables(run)
        for name, (rows, there) in self.stored({n: t["keys"] for n, t in tables.items()}).items():
            assert there.all(), f"{(~there).sum()} rows of {name} are missing"
            np.testing.assert_array_equal(rows, tables[name]["weights"])
        others = {n: np.setdiff1d(keys, tables[n]["keys"]) for n, keys in (gone or {}).items()}
        for name, (_, there) in self.stored(others).items():
            assert not there.any(), f"{there.sum()} rows of {name} are still in the store"

    def stored(self, keys: Mapping[str, np.ndarray]) -> dict[str, tuple[np.ndarray, np.ndarray]]:
        """Returns rows and whether there are some, by table, for sorted keys, as servers see them.

        Rows of cuts that are not folded are laid over the others.
        """
        generation = self.generation()
        store = open_store(self.store)
        try:
            numbers = {table.name: number for number, table in enumerate(generation.tables)}
            assert keys.keys() <= numbers.keys()
            found = {}
            for name, own in keys.items():
                rows, _, states = store.read(generation, numbers[name], own)
                found[name] = rows.view(np.float32).copy(), states == 1
            for cut in cuts_of(store.records, generation):
                for block in read_blocks(store, generation, cut, cut.places):
                    name = generation.tables[block.table].name
                    if name in keys and not cut.folded:
                        rows, there = found[name]
                        at, of_block = _places(keys[name], block.keys)
                        rows[at] = block.rows.view(np.float32)[of_block]
                        there[at] = (block.versions & TOMBSTONE)[of_block] == 0
            return found
        finally:
            store.close()

    def trained(self, run: str = "run") -> int:
        """Returns how many events a trainer has trained, by its page of metrics; 0: none yet.

        The section `online` has an address for it.
        """
        return self.counted("events", run)

    def counted(self, name: str, run: str = "run") -> int:
        """Returns the trainer's metric `hotrow_online_<name>_total`; 0: it does not answer yet."""
        return int(self.metric(f"{name}_total", run))

    def metric(self, name: str, run: str = "run") -> float:
        """Returns the trainer's metric `hotrow_online_<name>`; 0: it does not answer yet."""
        try:
            address = read_run_address(self.folder / run).address
        except NotFoundError:
            return 0
        with urllib.request.urlopen(f"http://{address}/metrics", timeout=60) as reply:
            page = reply.read().decode()
        return sum(
            sample.value
            for family in text_string_to_metric_families(page)
            for sample in family.samples
            if sample.name == f"hotrow_online_{name}"
        )

    def await_trained(self, events: int, run: str = "run", log: str = "log") -> None:
        """Waits until a trainer has trained so many events."""
        wait_until(lambda: self.trained(run) == events, lambda: self.log(log), 120)

    def has_checkpoint(self, step: int, run: str = "run") -> bool:
        """Returns whether a run has the checkpoint of a step."""
        return (self.folder / run / "checkpoints" / f"step-{step:08d}" / "manifest.json").exists()

    def published_steps(self) -> list[int]:
        """Returns the steps of the cuts that the newest version remembers, the oldest first."""
        files = sorted((self.folder / "models" / "clicks").glob("published-*.json"))
        if not files:
            return []
        return [cut["step"] for cut in json.loads(files[-1].read_text())["cuts"]]

    def last_cut(self) -> int:
        """Returns the version of the newest published cut."""
        files = sorted((self.folder / "models" / "clicks").glob("published-*.json"))
        return int(json.loads(files[-1].read_text())["cuts"][-1]["version"])

    def manifest(self):
        """Returns the manifest of the newest version."""
        folder = self.folder / "models" / "clicks"
        newest = max(int(path.name) for path in folder.glob("*") if path.name.isdecimal())
        return read_manifest(folder / str(newest) / "assets" / "hotrow_manifest.json")

    def all_folded(self) -> bool:
        """Returns whether no cut of the newest version is to be folded."""
        store = open_store(self.store)
        try:
            generation = Generations(store.records).get(self.manifest().generation)
            return all(cut.folded for cut in cuts_of(store.records, generation))
        finally:
            store.close()

    def generation(self) -> Generation:
        """Returns the generation of the newest version."""
        store = open_store(self.store)
        try:
            return Generations(store.records).get(self.manifest().generation)
        finally:
            store.close()


def _environment() -> dict[str, str]:
    """Returns this process's, in which a trainer in another folder finds the same package."""
    given = os.environ.get("PYTHONPATH", "")
    paths = [os.path.abspath(path) for path in given.split(os.pathsep) if path]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}


def _places(keys: np.ndarray, some: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns where keys are among sorted distinct ones, and which of them are."""
    if not len(keys):
        return np.empty(0, np.int64), np.zeros(len(some), bool)
    at = np.searchsorted(keys, some)
    known = keys[np.minimum(at, len(keys) - 1)] == some
    return at[known], known


def folders_of(pid: int) -> list[int]:
    """Returns the ids of processes that fold cuts for one."""
    found = []
    for children in Path(f"/proc/{pid}/task").glob("*/children"):
        for child in children.read_text().split():
            with contextlib.suppress(OSError):
                if b"folder_process" in Path(f"/proc/{child}/cmdline").read_bytes():
                    found.append(int(child))
    return found
