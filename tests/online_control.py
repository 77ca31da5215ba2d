"""A trainer's `Control` that keeps its state in memory, for what stands in front of a trainer."""

from __future__ import annotations

import time

from hotrow.errors import FailedPreconditionError, NotFoundError
from hotrow.protos import online_pb2

CUT = "0000020000000005"
EARLIER = "0000020000000003"
RESTORED = "0000020000000006"


class StateInMemory:
    """A trainer that has trained 1,200 events and published five cuts.

    Attributes:
        state: what `status` returns; tests change it.
        forced: what each `resume` was asked.
    """

    def __init__(self, model: str = "shop") -> None:
        now = time.time()
        self.forced: list[bool] = []
        self.state = state = online_pb2.TrainerStatus(
            run="shop-run",
            model=model,
            run_id="1f2e",
            state=online_pb2.TrainerStatus.TRAINING,
            since=now - 90,
            time=now,
            step=600,
            ranks=2,
            directory="/runs/shop",
            version="0.1",
            busy_seconds=31.5,
            busy=0.35,
        )
        state.stream.MergeFrom(
            online_pb2.Stream(
                source="redis://localhost/clicks",
                events=1200,
                events_per_second=40.5,
                bad=3,
                late=2,
                lag_events=7,
                lag_seconds=0.25,
                newest_event=now - 0.5,
            )
        )
        for model_name, auc in (("online", 0.78), ("frozen", 0.71)):
            metrics = online_pb2.Metrics(events=500, auc=auc, logloss=0.42, calibration=1.02)
            state.progressive.add(model=model_name, window=metrics, total=metrics)
        state.checkpoints.MergeFrom(online_pb2.Checkpoints(step=580, time=now - 20, written=4))
        state.publishing.MergeFrom(
            online_pb2.Publishing(
                last=online_pb2.Cut(
                    version=CUT,
                    step=598,
                    rows=210,
                    removed=4,
                    bytes=20480,
                    committed=now - 1.5,
                    stage_seconds=0.08,
                    dense=True,
                ),
                cuts=5,
                rows=1000,
                coalesced_rows=37,
                waiting_rows=12,
                failures_total=1,
                folded=EARLIER,
                base_exports=1,
                publish_every_seconds=1.0,
            )
        )

    def status(self) -> online_pb2.TrainerStatus:
        """Returns a copy of the state, made now."""
        copy = online_pb2.TrainerStatus()
        copy.CopyFrom(self.state)
        copy.time = time.time()
        return copy

    def pause(self, reason: str) -> None:
        """Pauses."""
        self.state.state = online_pb2.TrainerStatus.PAUSED
        self.state.reason = reason
        self.state.since = time.time()

    def resume(self, force: bool) -> None:
        """Goes on."""
        if self.state.state == online_pb2.TrainerStatus.TRAINING:
            raise FailedPreconditionError("the trainer is training; nothing to resume")
        self.forced.append(force)
        self.state.publishing.ClearField("gate")
        self.state.state = online_pb2.TrainerStatus.TRAINING
        self.state.reason = ""

    def rollback(self, to: str) -> str:
        """Goes back to EARLIER, the only cut that is kept."""
        if to != EARLIER:
            raise NotFoundError(f"{to} is not kept; there are: {EARLIER}")
        self.state.publishing.last.version = RESTORED
        self.state.state = online_pb2.TrainerStatus.GATE_CLOSED
        self.state.reason = f"rolled back to {to}"
        self.state.publishing.gate.MergeFrom(
            online_pb2.Gate(closed=True, reason=self.state.reason, since=time.time())
        )
        return RESTORED
