from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class StatusRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class PauseRequest(_message.Message):
    __slots__ = ("reason",)
    REASON_FIELD_NUMBER: _ClassVar[int]
    reason: str
    def __init__(self, reason: _Optional[str] = ...) -> None: ...

class ResumeRequest(_message.Message):
    __slots__ = ("force",)
    FORCE_FIELD_NUMBER: _ClassVar[int]
    force: bool
    def __init__(self, force: bool = ...) -> None: ...

class RollbackRequest(_message.Message):
    __slots__ = ("to",)
    TO_FIELD_NUMBER: _ClassVar[int]
    to: str
    def __init__(self, to: _Optional[str] = ...) -> None: ...

class RollbackReply(_message.Message):
    __slots__ = ("cut",)
    CUT_FIELD_NUMBER: _ClassVar[int]
    cut: str
    def __init__(self, cut: _Optional[str] = ...) -> None: ...

class TrainerStatus(_message.Message):
    __slots__ = ("run", "model", "run_id", "state", "reason", "since", "time", "step", "ranks", "stream", "progressive", "checkpoints", "publishing", "directory", "version", "busy_seconds", "busy")
    class State(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        STATE_UNSPECIFIED: _ClassVar[TrainerStatus.State]
        TRAINING: _ClassVar[TrainerStatus.State]
        PAUSED: _ClassVar[TrainerStatus.State]
        GATE_CLOSED: _ClassVar[TrainerStatus.State]
        FENCED: _ClassVar[TrainerStatus.State]
        ENDED: _ClassVar[TrainerStatus.State]
    STATE_UNSPECIFIED: TrainerStatus.State
    TRAINING: TrainerStatus.State
    PAUSED: TrainerStatus.State
    GATE_CLOSED: TrainerStatus.State
    FENCED: TrainerStatus.State
    ENDED: TrainerStatus.State
    RUN_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    SINCE_FIELD_NUMBER: _ClassVar[int]
    TIME_FIELD_NUMBER: _ClassVar[int]
    STEP_FIELD_NUMBER: _ClassVar[int]
    RANKS_FIELD_NUMBER: _ClassVar[int]
    STREAM_FIELD_NUMBER: _ClassVar[int]
    PROGRESSIVE_FIELD_NUMBER: _ClassVar[int]
    CHECKPOINTS_FIELD_NUMBER: _ClassVar[int]
    PUBLISHING_FIELD_NUMBER: _ClassVar[int]
    DIRECTORY_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    BUSY_SECONDS_FIELD_NUMBER: _ClassVar[int]
    BUSY_FIELD_NUMBER: _ClassVar[int]
    run: str
    model: str
    run_id: str
    state: TrainerStatus.State
    reason: str
    since: float
    time: float
    step: int
    ranks: int
    stream: Stream
    progressive: _containers.RepeatedCompositeFieldContainer[Progressive]
    checkpoints: Checkpoints
    publishing: Publishing
    directory: str
    version: str
    busy_seconds: float
    busy: float
    def __init__(self, run: _Optional[str] = ..., model: _Optional[str] = ..., run_id: _Optional[str] = ..., state: _Optional[_Union[TrainerStatus.State, str]] = ..., reason: _Optional[str] = ..., since: _Optional[float] = ..., time: _Optional[float] = ..., step: _Optional[int] = ..., ranks: _Optional[int] = ..., stream: _Optional[_Union[Stream, _Mapping]] = ..., progressive: _Optional[_Iterable[_Union[Progressive, _Mapping]]] = ..., checkpoints: _Optional[_Union[Checkpoints, _Mapping]] = ..., publishing: _Optional[_Union[Publishing, _Mapping]] = ..., directory: _Optional[str] = ..., version: _Optional[str] = ..., busy_seconds: _Optional[float] = ..., busy: _Optional[float] = ...) -> None: ...

class Stream(_message.Message):
    __slots__ = ("source", "events", "events_per_second", "bad", "late", "joined", "expired", "early", "lag_events", "lag_seconds", "newest_event", "trouble")
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    EVENTS_FIELD_NUMBER: _ClassVar[int]
    EVENTS_PER_SECOND_FIELD_NUMBER: _ClassVar[int]
    BAD_FIELD_NUMBER: _ClassVar[int]
    LATE_FIELD_NUMBER: _ClassVar[int]
    JOINED_FIELD_NUMBER: _ClassVar[int]
    EXPIRED_FIELD_NUMBER: _ClassVar[int]
    EARLY_FIELD_NUMBER: _ClassVar[int]
    LAG_EVENTS_FIELD_NUMBER: _ClassVar[int]
    LAG_SECONDS_FIELD_NUMBER: _ClassVar[int]
    NEWEST_EVENT_FIELD_NUMBER: _ClassVar[int]
    TROUBLE_FIELD_NUMBER: _ClassVar[int]
    source: str
    events: int
    events_per_second: float
    bad: int
    late: int
    joined: int
    expired: int
    early: int
    lag_events: int
    lag_seconds: float
    newest_event: float
    trouble: str
    def __init__(self, source: _Optional[str] = ..., events: _Optional[int] = ..., events_per_second: _Optional[float] = ..., bad: _Optional[int] = ..., late: _Optional[int] = ..., joined: _Optional[int] = ..., expired: _Optional[int] = ..., early: _Optional[int] = ..., lag_events: _Optional[int] = ..., lag_seconds: _Optional[float] = ..., newest_event: _Optional[float] = ..., trouble: _Optional[str] = ...) -> None: ...

class Progressive(_message.Message):
    __slots__ = ("model", "window", "total")
    MODEL_FIELD_NUMBER: _ClassVar[int]
    WINDOW_FIELD_NUMBER: _ClassVar[int]
    TOTAL_FIELD_NUMBER: _ClassVar[int]
    model: str
    window: Metrics
    total: Metrics
    def __init__(self, model: _Optional[str] = ..., window: _Optional[_Union[Metrics, _Mapping]] = ..., total: _Optional[_Union[Metrics, _Mapping]] = ...) -> None: ...

class Metrics(_message.Message):
    __slots__ = ("events", "auc", "logloss", "calibration")
    EVENTS_FIELD_NUMBER: _ClassVar[int]
    AUC_FIELD_NUMBER: _ClassVar[int]
    LOGLOSS_FIELD_NUMBER: _ClassVar[int]
    CALIBRATION_FIELD_NUMBER: _ClassVar[int]
    events: int
    auc: float
    logloss: float
    calibration: float
    def __init__(self, events: _Optional[int] = ..., auc: _Optional[float] = ..., logloss: _Optional[float] = ..., calibration: _Optional[float] = ...) -> None: ...

class Checkpoints(_message.Message):
    __slots__ = ("step", "time", "written", "failures", "error")
    STEP_FIELD_NUMBER: _ClassVar[int]
    TIME_FIELD_NUMBER: _ClassVar[int]
    WRITTEN_FIELD_NUMBER: _ClassVar[int]
    FAILURES_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    step: int
    time: float
    written: int
    failures: int
    error: str
    def __init__(self, step: _Optional[int] = ..., time: _Optional[float] = ..., written: _Optional[int] = ..., failures: _Optional[int] = ..., error: _Optional[str] = ...) -> None: ...

class Publishing(_message.Message):
    __slots__ = ("last", "cuts", "rows", "coalesced_rows", "waiting_rows", "failures", "failures_total", "error", "folded", "base_exports", "gate", "canary", "fenced", "publish_seconds", "event_to_commit_seconds", "models", "store", "unfolded_cuts", "publish_every_seconds")
    LAST_FIELD_NUMBER: _ClassVar[int]
    CUTS_FIELD_NUMBER: _ClassVar[int]
    ROWS_FIELD_NUMBER: _ClassVar[int]
    COALESCED_ROWS_FIELD_NUMBER: _ClassVar[int]
    WAITING_ROWS_FIELD_NUMBER: _ClassVar[int]
    FAILURES_FIELD_NUMBER: _ClassVar[int]
    FAILURES_TOTAL_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    FOLDED_FIELD_NUMBER: _ClassVar[int]
    BASE_EXPORTS_FIELD_NUMBER: _ClassVar[int]
    GATE_FIELD_NUMBER: _ClassVar[int]
    CANARY_FIELD_NUMBER: _ClassVar[int]
    FENCED_FIELD_NUMBER: _ClassVar[int]
    PUBLISH_SECONDS_FIELD_NUMBER: _ClassVar[int]
    EVENT_TO_COMMIT_SECONDS_FIELD_NUMBER: _ClassVar[int]
    MODELS_FIELD_NUMBER: _ClassVar[int]
    STORE_FIELD_NUMBER: _ClassVar[int]
    UNFOLDED_CUTS_FIELD_NUMBER: _ClassVar[int]
    PUBLISH_EVERY_SECONDS_FIELD_NUMBER: _ClassVar[int]
    last: Cut
    cuts: int
    rows: int
    coalesced_rows: int
    waiting_rows: int
    failures: int
    failures_total: int
    error: str
    folded: str
    base_exports: int
    gate: Gate
    canary: Canary
    fenced: bool
    publish_seconds: Histogram
    event_to_commit_seconds: Histogram
    models: str
    store: str
    unfolded_cuts: int
    publish_every_seconds: float
    def __init__(self, last: _Optional[_Union[Cut, _Mapping]] = ..., cuts: _Optional[int] = ..., rows: _Optional[int] = ..., coalesced_rows: _Optional[int] = ..., waiting_rows: _Optional[int] = ..., failures: _Optional[int] = ..., failures_total: _Optional[int] = ..., error: _Optional[str] = ..., folded: _Optional[str] = ..., base_exports: _Optional[int] = ..., gate: _Optional[_Union[Gate, _Mapping]] = ..., canary: _Optional[_Union[Canary, _Mapping]] = ..., fenced: bool = ..., publish_seconds: _Optional[_Union[Histogram, _Mapping]] = ..., event_to_commit_seconds: _Optional[_Union[Histogram, _Mapping]] = ..., models: _Optional[str] = ..., store: _Optional[str] = ..., unfolded_cuts: _Optional[int] = ..., publish_every_seconds: _Optional[float] = ...) -> None: ...

class Cut(_message.Message):
    __slots__ = ("version", "step", "rows", "removed", "bytes", "committed", "stage_seconds", "dense")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    STEP_FIELD_NUMBER: _ClassVar[int]
    ROWS_FIELD_NUMBER: _ClassVar[int]
    REMOVED_FIELD_NUMBER: _ClassVar[int]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    COMMITTED_FIELD_NUMBER: _ClassVar[int]
    STAGE_SECONDS_FIELD_NUMBER: _ClassVar[int]
    DENSE_FIELD_NUMBER: _ClassVar[int]
    version: str
    step: int
    rows: int
    removed: int
    bytes: int
    committed: float
    stage_seconds: float
    dense: bool
    def __init__(self, version: _Optional[str] = ..., step: _Optional[int] = ..., rows: _Optional[int] = ..., removed: _Optional[int] = ..., bytes: _Optional[int] = ..., committed: _Optional[float] = ..., stage_seconds: _Optional[float] = ..., dense: bool = ...) -> None: ...

class Gate(_message.Message):
    __slots__ = ("closed", "reason", "since", "closed_total")
    CLOSED_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    SINCE_FIELD_NUMBER: _ClassVar[int]
    CLOSED_TOTAL_FIELD_NUMBER: _ClassVar[int]
    closed: bool
    reason: str
    since: float
    closed_total: int
    def __init__(self, closed: bool = ..., reason: _Optional[str] = ..., since: _Optional[float] = ..., closed_total: _Optional[int] = ...) -> None: ...

class Canary(_message.Message):
    __slots__ = ("mean_score", "auc", "change", "server_difference", "trouble", "tolerance")
    MEAN_SCORE_FIELD_NUMBER: _ClassVar[int]
    AUC_FIELD_NUMBER: _ClassVar[int]
    CHANGE_FIELD_NUMBER: _ClassVar[int]
    SERVER_DIFFERENCE_FIELD_NUMBER: _ClassVar[int]
    TROUBLE_FIELD_NUMBER: _ClassVar[int]
    TOLERANCE_FIELD_NUMBER: _ClassVar[int]
    mean_score: float
    auc: float
    change: float
    server_difference: float
    trouble: str
    tolerance: float
    def __init__(self, mean_score: _Optional[float] = ..., auc: _Optional[float] = ..., change: _Optional[float] = ..., server_difference: _Optional[float] = ..., trouble: _Optional[str] = ..., tolerance: _Optional[float] = ...) -> None: ...

class Histogram(_message.Message):
    __slots__ = ("bounds", "buckets", "sum")
    BOUNDS_FIELD_NUMBER: _ClassVar[int]
    BUCKETS_FIELD_NUMBER: _ClassVar[int]
    SUM_FIELD_NUMBER: _ClassVar[int]
    bounds: _containers.RepeatedScalarFieldContainer[float]
    buckets: _containers.RepeatedScalarFieldContainer[int]
    sum: float
    def __init__(self, bounds: _Optional[_Iterable[float]] = ..., buckets: _Optional[_Iterable[int]] = ..., sum: _Optional[float] = ...) -> None: ...
