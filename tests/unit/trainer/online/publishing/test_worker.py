"""The thread that publishes, with a store of its own and no training."""

from __future__ import annotations

import threading

import pytest
from waiting import wait_until

from hotrow.errors import FencedError
from hotrow.hold_bounds import HoldBounds
from hotrow.lineage import Lineage
from hotrow.norms import GateError
from hotrow.store.access import StoreAccess
from hotrow.store.leases import exporter_of, lock_exports
from hotrow.trainer.online.publishing.counts import PublishCounts
from hotrow.trainer.online.publishing.folder import CutFolder
from hotrow.trainer.online.publishing.gate import Limits
from hotrow.trainer.online.publishing.journal import Journal
from hotrow.trainer.online.publishing.phase import Phase
from hotrow.trainer.online.publishing.store_writer import StoreWriter
from hotrow.trainer.online.publishing.worker import CutWorker


class Exports:
    """Takes the place of full exports: a gate refuses those that are not forced."""

    def __init__(self) -> None:
        self.asked: list[tuple[int, bool]] = []
        self.lenders: list[str] = []

    def __call__(self, step: int, force: bool, lender: str) -> None:
        self.asked.append((step, force))
        self.lenders.append(lender)
        if not force:
            raise GateError("table 'user': 1 rows are not finite")


@pytest.fixture
def exports():
    return Exports()


@pytest.fixture
def writer(tmp_path):
    return StoreWriter(tmp_path / "models", "m", f"file://{tmp_path}/store", StoreAccess())


@pytest.fixture
def worker(writer, tmp_path, exports):
    folder = CutFolder(
        f"file://{tmp_path}/store",
        StoreAccess(),
        seconds=1.0,
        undo_cuts=0,
        bounds=HoldBounds(),
        counts=PublishCounts(),
        report=lambda line: None,
    )
    worker = CutWorker(
        writer,
        folder,
        Journal(tmp_path),
        schema_hash="",
        lineage=Lineage,
        dense_names=[],
        restored=None,
        limits=Limits(100.0, None, None),
        ranks=1,
        dense_seconds=None,
        keep_checkpoint=lambda step: None,
        export_base=exports,
        report=lambda line: None,
    )
    worker.start()
    yield worker
    worker.close()


def has_thread() -> bool:
    return any(thread.name == "publisher" for thread in threading.enumerate())


def checkpoint(worker: CutWorker, step: int) -> None:
    worker.done({"base": True})
    worker.have_checkpoint(step)


def test_a_full_export_that_a_gate_refuses_closes_the_gate_until_it_is_opened(
    worker, writer, exports
):
    wait_until(lambda: worker.order(True) == {"base": True})
    checkpoint(worker, 5)
    wait_until(lambda: worker.gate.is_closed and worker.phase is Phase.BASE)
    assert worker.gate.reason == "table 'user': 1 rows are not finite"
    assert worker.order(True) == {}
    assert has_thread()
    assert exports.asked == [(5, False)]
    assert [exporter_of(writer.store.records, "m").holder] == exports.lenders

    worker.gate.open(force=True)
    assert worker.order(True) == {"base": True}
    checkpoint(worker, 9)
    wait_until(lambda: worker.counts.base_exports == 1)
    assert exports.asked == [(5, False), (9, True)]
    assert not worker.gate.force


def test_a_trainer_whose_lock_another_one_took_makes_no_full_export(worker, writer, exports):
    wait_until(lambda: worker.order(True) == {"base": True})
    records = writer.store.records
    assert records.swap("export/m", records.get("export/m"), None)
    with lock_exports(records, "m", trainer="elsewhere"):
        checkpoint(worker, 5)
        wait_until(lambda: worker.failure is not None, lambda: worker.hindrance)
    assert isinstance(worker.failure, FencedError)
    assert "another process publishes model 'm'" in worker.hindrance
    assert "it is the trainer of elsewhere" in worker.hindrance
    assert not exports.asked
