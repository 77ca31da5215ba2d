from tensorflow_serving.apis import get_model_status_pb2 as _get_model_status_pb2
from tensorflow_serving.config import logging_config_pb2 as _logging_config_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Request(_message.Message):
    __slots__ = ("load", "unload", "set_routes", "listen", "drain", "describe", "stats", "set_batching", "set_topology", "show", "set_stale", "set_statuses")
    LOAD_FIELD_NUMBER: _ClassVar[int]
    UNLOAD_FIELD_NUMBER: _ClassVar[int]
    SET_ROUTES_FIELD_NUMBER: _ClassVar[int]
    LISTEN_FIELD_NUMBER: _ClassVar[int]
    DRAIN_FIELD_NUMBER: _ClassVar[int]
    DESCRIBE_FIELD_NUMBER: _ClassVar[int]
    STATS_FIELD_NUMBER: _ClassVar[int]
    SET_BATCHING_FIELD_NUMBER: _ClassVar[int]
    SET_TOPOLOGY_FIELD_NUMBER: _ClassVar[int]
    SHOW_FIELD_NUMBER: _ClassVar[int]
    SET_STALE_FIELD_NUMBER: _ClassVar[int]
    SET_STATUSES_FIELD_NUMBER: _ClassVar[int]
    load: LoadRequest
    unload: UnloadRequest
    set_routes: Routes
    listen: ListenRequest
    drain: DrainRequest
    describe: DescribeRequest
    stats: StatsRequest
    set_batching: SetBatching
    set_topology: SetTopology
    show: Show
    set_stale: SetStale
    set_statuses: Statuses
    def __init__(self, load: _Optional[_Union[LoadRequest, _Mapping]] = ..., unload: _Optional[_Union[UnloadRequest, _Mapping]] = ..., set_routes: _Optional[_Union[Routes, _Mapping]] = ..., listen: _Optional[_Union[ListenRequest, _Mapping]] = ..., drain: _Optional[_Union[DrainRequest, _Mapping]] = ..., describe: _Optional[_Union[DescribeRequest, _Mapping]] = ..., stats: _Optional[_Union[StatsRequest, _Mapping]] = ..., set_batching: _Optional[_Union[SetBatching, _Mapping]] = ..., set_topology: _Optional[_Union[SetTopology, _Mapping]] = ..., show: _Optional[_Union[Show, _Mapping]] = ..., set_stale: _Optional[_Union[SetStale, _Mapping]] = ..., set_statuses: _Optional[_Union[Statuses, _Mapping]] = ...) -> None: ...

class Reply(_message.Message):
    __slots__ = ("code", "message", "listen", "describe", "stats")
    CODE_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    LISTEN_FIELD_NUMBER: _ClassVar[int]
    DESCRIBE_FIELD_NUMBER: _ClassVar[int]
    STATS_FIELD_NUMBER: _ClassVar[int]
    code: int
    message: str
    listen: ListenReply
    describe: DescribeReply
    stats: StatsReply
    def __init__(self, code: _Optional[int] = ..., message: _Optional[str] = ..., listen: _Optional[_Union[ListenReply, _Mapping]] = ..., describe: _Optional[_Union[DescribeReply, _Mapping]] = ..., stats: _Optional[_Union[StatsReply, _Mapping]] = ...) -> None: ...

class LoadRequest(_message.Message):
    __slots__ = ("servable", "model", "version", "path", "tags", "session_config", "manifest", "store", "batching", "warm_up", "rows", "shares", "shown", "session")
    SERVABLE_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    PATH_FIELD_NUMBER: _ClassVar[int]
    TAGS_FIELD_NUMBER: _ClassVar[int]
    SESSION_CONFIG_FIELD_NUMBER: _ClassVar[int]
    MANIFEST_FIELD_NUMBER: _ClassVar[int]
    STORE_FIELD_NUMBER: _ClassVar[int]
    BATCHING_FIELD_NUMBER: _ClassVar[int]
    WARM_UP_FIELD_NUMBER: _ClassVar[int]
    ROWS_FIELD_NUMBER: _ClassVar[int]
    SHARES_FIELD_NUMBER: _ClassVar[int]
    SHOWN_FIELD_NUMBER: _ClassVar[int]
    SESSION_FIELD_NUMBER: _ClassVar[int]
    servable: int
    model: str
    version: int
    path: str
    tags: _containers.RepeatedScalarFieldContainer[str]
    session_config: bytes
    manifest: str
    store: str
    batching: Batching
    warm_up: WarmUp
    rows: Rows
    shares: int
    shown: ShownCut
    session: str
    def __init__(self, servable: _Optional[int] = ..., model: _Optional[str] = ..., version: _Optional[int] = ..., path: _Optional[str] = ..., tags: _Optional[_Iterable[str]] = ..., session_config: _Optional[bytes] = ..., manifest: _Optional[str] = ..., store: _Optional[str] = ..., batching: _Optional[_Union[Batching, _Mapping]] = ..., warm_up: _Optional[_Union[WarmUp, _Mapping]] = ..., rows: _Optional[_Union[Rows, _Mapping]] = ..., shares: _Optional[int] = ..., shown: _Optional[_Union[ShownCut, _Mapping]] = ..., session: _Optional[str] = ...) -> None: ...

class ShownCut(_message.Message):
    __slots__ = ("version", "layers", "dense", "fence", "identity")
    class Layer(_message.Message):
        __slots__ = ("version", "blocks")
        VERSION_FIELD_NUMBER: _ClassVar[int]
        BLOCKS_FIELD_NUMBER: _ClassVar[int]
        version: int
        blocks: str
        def __init__(self, version: _Optional[int] = ..., blocks: _Optional[str] = ...) -> None: ...
    VERSION_FIELD_NUMBER: _ClassVar[int]
    LAYERS_FIELD_NUMBER: _ClassVar[int]
    DENSE_FIELD_NUMBER: _ClassVar[int]
    FENCE_FIELD_NUMBER: _ClassVar[int]
    IDENTITY_FIELD_NUMBER: _ClassVar[int]
    version: int
    layers: _containers.RepeatedCompositeFieldContainer[ShownCut.Layer]
    dense: str
    fence: int
    identity: str
    def __init__(self, version: _Optional[int] = ..., layers: _Optional[_Iterable[_Union[ShownCut.Layer, _Mapping]]] = ..., dense: _Optional[str] = ..., fence: _Optional[int] = ..., identity: _Optional[str] = ...) -> None: ...

class Show(_message.Message):
    __slots__ = ("servable", "cut", "forget_cached")
    SERVABLE_FIELD_NUMBER: _ClassVar[int]
    CUT_FIELD_NUMBER: _ClassVar[int]
    FORGET_CACHED_FIELD_NUMBER: _ClassVar[int]
    servable: int
    cut: ShownCut
    forget_cached: bool
    def __init__(self, servable: _Optional[int] = ..., cut: _Optional[_Union[ShownCut, _Mapping]] = ..., forget_cached: bool = ...) -> None: ...

class SetStale(_message.Message):
    __slots__ = ("servable", "stale")
    SERVABLE_FIELD_NUMBER: _ClassVar[int]
    STALE_FIELD_NUMBER: _ClassVar[int]
    servable: int
    stale: bool
    def __init__(self, servable: _Optional[int] = ..., stale: bool = ...) -> None: ...

class Rows(_message.Message):
    __slots__ = ("generation", "topology", "username", "password", "database", "timeout_millis", "default_on_failure", "cache_rows", "cache_bytes", "cache_lru", "max_reads", "warm_up_rows_per_second", "gpu_cache_bytes", "gpu", "gpu_if_faster")
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    TOPOLOGY_FIELD_NUMBER: _ClassVar[int]
    USERNAME_FIELD_NUMBER: _ClassVar[int]
    PASSWORD_FIELD_NUMBER: _ClassVar[int]
    DATABASE_FIELD_NUMBER: _ClassVar[int]
    TIMEOUT_MILLIS_FIELD_NUMBER: _ClassVar[int]
    DEFAULT_ON_FAILURE_FIELD_NUMBER: _ClassVar[int]
    CACHE_ROWS_FIELD_NUMBER: _ClassVar[int]
    CACHE_BYTES_FIELD_NUMBER: _ClassVar[int]
    CACHE_LRU_FIELD_NUMBER: _ClassVar[int]
    MAX_READS_FIELD_NUMBER: _ClassVar[int]
    WARM_UP_ROWS_PER_SECOND_FIELD_NUMBER: _ClassVar[int]
    GPU_CACHE_BYTES_FIELD_NUMBER: _ClassVar[int]
    GPU_FIELD_NUMBER: _ClassVar[int]
    GPU_IF_FASTER_FIELD_NUMBER: _ClassVar[int]
    generation: str
    topology: str
    username: str
    password: str
    database: int
    timeout_millis: int
    default_on_failure: bool
    cache_rows: int
    cache_bytes: int
    cache_lru: bool
    max_reads: int
    warm_up_rows_per_second: int
    gpu_cache_bytes: int
    gpu: int
    gpu_if_faster: bool
    def __init__(self, generation: _Optional[str] = ..., topology: _Optional[str] = ..., username: _Optional[str] = ..., password: _Optional[str] = ..., database: _Optional[int] = ..., timeout_millis: _Optional[int] = ..., default_on_failure: bool = ..., cache_rows: _Optional[int] = ..., cache_bytes: _Optional[int] = ..., cache_lru: bool = ..., max_reads: _Optional[int] = ..., warm_up_rows_per_second: _Optional[int] = ..., gpu_cache_bytes: _Optional[int] = ..., gpu: _Optional[int] = ..., gpu_if_faster: bool = ...) -> None: ...

class SetTopology(_message.Message):
    __slots__ = ("servable", "topology")
    SERVABLE_FIELD_NUMBER: _ClassVar[int]
    TOPOLOGY_FIELD_NUMBER: _ClassVar[int]
    servable: int
    topology: str
    def __init__(self, servable: _Optional[int] = ..., topology: _Optional[str] = ...) -> None: ...

class WarmUp(_message.Message):
    __slots__ = ("requests", "zeros")
    class Method(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        PREDICT: _ClassVar[WarmUp.Method]
        CLASSIFY: _ClassVar[WarmUp.Method]
        REGRESS: _ClassVar[WarmUp.Method]
        MULTI_INFERENCE: _ClassVar[WarmUp.Method]
    PREDICT: WarmUp.Method
    CLASSIFY: WarmUp.Method
    REGRESS: WarmUp.Method
    MULTI_INFERENCE: WarmUp.Method
    class Request(_message.Message):
        __slots__ = ("method", "request", "runs")
        METHOD_FIELD_NUMBER: _ClassVar[int]
        REQUEST_FIELD_NUMBER: _ClassVar[int]
        RUNS_FIELD_NUMBER: _ClassVar[int]
        method: WarmUp.Method
        request: bytes
        runs: int
        def __init__(self, method: _Optional[_Union[WarmUp.Method, str]] = ..., request: _Optional[bytes] = ..., runs: _Optional[int] = ...) -> None: ...
    REQUESTS_FIELD_NUMBER: _ClassVar[int]
    ZEROS_FIELD_NUMBER: _ClassVar[int]
    requests: _containers.RepeatedCompositeFieldContainer[WarmUp.Request]
    zeros: bool
    def __init__(self, requests: _Optional[_Iterable[_Union[WarmUp.Request, _Mapping]]] = ..., zeros: bool = ...) -> None: ...

class Batching(_message.Message):
    __slots__ = ("max_batch_size", "batch_timeout_micros", "max_enqueued_batches", "allowed_batch_sizes", "pad_variable_length_inputs", "split_large_batches", "max_execution_batch_size", "thread_pool_name")
    MAX_BATCH_SIZE_FIELD_NUMBER: _ClassVar[int]
    BATCH_TIMEOUT_MICROS_FIELD_NUMBER: _ClassVar[int]
    MAX_ENQUEUED_BATCHES_FIELD_NUMBER: _ClassVar[int]
    ALLOWED_BATCH_SIZES_FIELD_NUMBER: _ClassVar[int]
    PAD_VARIABLE_LENGTH_INPUTS_FIELD_NUMBER: _ClassVar[int]
    SPLIT_LARGE_BATCHES_FIELD_NUMBER: _ClassVar[int]
    MAX_EXECUTION_BATCH_SIZE_FIELD_NUMBER: _ClassVar[int]
    THREAD_POOL_NAME_FIELD_NUMBER: _ClassVar[int]
    max_batch_size: int
    batch_timeout_micros: int
    max_enqueued_batches: int
    allowed_batch_sizes: _containers.RepeatedScalarFieldContainer[int]
    pad_variable_length_inputs: bool
    split_large_batches: bool
    max_execution_batch_size: int
    thread_pool_name: str
    def __init__(self, max_batch_size: _Optional[int] = ..., batch_timeout_micros: _Optional[int] = ..., max_enqueued_batches: _Optional[int] = ..., allowed_batch_sizes: _Optional[_Iterable[int]] = ..., pad_variable_length_inputs: bool = ..., split_large_batches: bool = ..., max_execution_batch_size: _Optional[int] = ..., thread_pool_name: _Optional[str] = ...) -> None: ...

class SetBatching(_message.Message):
    __slots__ = ("threads", "servables")
    class ServablesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: int
        value: Batching
        def __init__(self, key: _Optional[int] = ..., value: _Optional[_Union[Batching, _Mapping]] = ...) -> None: ...
    THREADS_FIELD_NUMBER: _ClassVar[int]
    SERVABLES_FIELD_NUMBER: _ClassVar[int]
    threads: int
    servables: _containers.MessageMap[int, Batching]
    def __init__(self, threads: _Optional[int] = ..., servables: _Optional[_Mapping[int, Batching]] = ...) -> None: ...

class UnloadRequest(_message.Message):
    __slots__ = ("servable",)
    SERVABLE_FIELD_NUMBER: _ClassVar[int]
    servable: int
    def __init__(self, servable: _Optional[int] = ...) -> None: ...

class Routes(_message.Message):
    __slots__ = ("models", "request_logs")
    class Version(_message.Message):
        __slots__ = ("version", "servable")
        VERSION_FIELD_NUMBER: _ClassVar[int]
        SERVABLE_FIELD_NUMBER: _ClassVar[int]
        version: int
        servable: int
        def __init__(self, version: _Optional[int] = ..., servable: _Optional[int] = ...) -> None: ...
    class Model(_message.Message):
        __slots__ = ("name", "versions", "labels", "logging")
        class LabelsEntry(_message.Message):
            __slots__ = ("key", "value")
            KEY_FIELD_NUMBER: _ClassVar[int]
            VALUE_FIELD_NUMBER: _ClassVar[int]
            key: str
            value: int
            def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
        NAME_FIELD_NUMBER: _ClassVar[int]
        VERSIONS_FIELD_NUMBER: _ClassVar[int]
        LABELS_FIELD_NUMBER: _ClassVar[int]
        LOGGING_FIELD_NUMBER: _ClassVar[int]
        name: str
        versions: _containers.RepeatedCompositeFieldContainer[Routes.Version]
        labels: _containers.ScalarMap[str, int]
        logging: _logging_config_pb2.LoggingConfig
        def __init__(self, name: _Optional[str] = ..., versions: _Optional[_Iterable[_Union[Routes.Version, _Mapping]]] = ..., labels: _Optional[_Mapping[str, int]] = ..., logging: _Optional[_Union[_logging_config_pb2.LoggingConfig, _Mapping]] = ...) -> None: ...
    MODELS_FIELD_NUMBER: _ClassVar[int]
    REQUEST_LOGS_FIELD_NUMBER: _ClassVar[int]
    models: _containers.RepeatedCompositeFieldContainer[Routes.Model]
    request_logs: RequestLogLimits
    def __init__(self, models: _Optional[_Iterable[_Union[Routes.Model, _Mapping]]] = ..., request_logs: _Optional[_Union[RequestLogLimits, _Mapping]] = ...) -> None: ...

class RequestLogLimits(_message.Message):
    __slots__ = ("file_bytes", "file_seconds", "queue_bytes")
    FILE_BYTES_FIELD_NUMBER: _ClassVar[int]
    FILE_SECONDS_FIELD_NUMBER: _ClassVar[int]
    QUEUE_BYTES_FIELD_NUMBER: _ClassVar[int]
    file_bytes: int
    file_seconds: int
    queue_bytes: int
    def __init__(self, file_bytes: _Optional[int] = ..., file_seconds: _Optional[int] = ..., queue_bytes: _Optional[int] = ...) -> None: ...

class ListenRequest(_message.Message):
    __slots__ = ("port", "socket_paths", "max_threads", "backend", "tensor_content", "check_method_name", "tls", "channel_arguments", "health", "reflection", "rest", "request_memory_bytes")
    class Tls(_message.Message):
        __slots__ = ("server_key", "server_cert", "custom_ca", "client_verify")
        SERVER_KEY_FIELD_NUMBER: _ClassVar[int]
        SERVER_CERT_FIELD_NUMBER: _ClassVar[int]
        CUSTOM_CA_FIELD_NUMBER: _ClassVar[int]
        CLIENT_VERIFY_FIELD_NUMBER: _ClassVar[int]
        server_key: str
        server_cert: str
        custom_ca: str
        client_verify: bool
        def __init__(self, server_key: _Optional[str] = ..., server_cert: _Optional[str] = ..., custom_ca: _Optional[str] = ..., client_verify: bool = ...) -> None: ...
    class ChannelArgument(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    class Rest(_message.Message):
        __slots__ = ("port", "tls", "max_threads", "max_body_bytes", "read_millis", "run_millis", "cors", "metrics_path", "metrics_elsewhere")
        PORT_FIELD_NUMBER: _ClassVar[int]
        TLS_FIELD_NUMBER: _ClassVar[int]
        MAX_THREADS_FIELD_NUMBER: _ClassVar[int]
        MAX_BODY_BYTES_FIELD_NUMBER: _ClassVar[int]
        READ_MILLIS_FIELD_NUMBER: _ClassVar[int]
        RUN_MILLIS_FIELD_NUMBER: _ClassVar[int]
        CORS_FIELD_NUMBER: _ClassVar[int]
        METRICS_PATH_FIELD_NUMBER: _ClassVar[int]
        METRICS_ELSEWHERE_FIELD_NUMBER: _ClassVar[int]
        port: int
        tls: ListenRequest.Tls
        max_threads: int
        max_body_bytes: int
        read_millis: int
        run_millis: int
        cors: bool
        metrics_path: str
        metrics_elsewhere: bool
        def __init__(self, port: _Optional[int] = ..., tls: _Optional[_Union[ListenRequest.Tls, _Mapping]] = ..., max_threads: _Optional[int] = ..., max_body_bytes: _Optional[int] = ..., read_millis: _Optional[int] = ..., run_millis: _Optional[int] = ..., cors: bool = ..., metrics_path: _Optional[str] = ..., metrics_elsewhere: bool = ...) -> None: ...
    PORT_FIELD_NUMBER: _ClassVar[int]
    SOCKET_PATHS_FIELD_NUMBER: _ClassVar[int]
    MAX_THREADS_FIELD_NUMBER: _ClassVar[int]
    BACKEND_FIELD_NUMBER: _ClassVar[int]
    TENSOR_CONTENT_FIELD_NUMBER: _ClassVar[int]
    CHECK_METHOD_NAME_FIELD_NUMBER: _ClassVar[int]
    TLS_FIELD_NUMBER: _ClassVar[int]
    CHANNEL_ARGUMENTS_FIELD_NUMBER: _ClassVar[int]
    HEALTH_FIELD_NUMBER: _ClassVar[int]
    REFLECTION_FIELD_NUMBER: _ClassVar[int]
    REST_FIELD_NUMBER: _ClassVar[int]
    REQUEST_MEMORY_BYTES_FIELD_NUMBER: _ClassVar[int]
    port: int
    socket_paths: _containers.RepeatedScalarFieldContainer[str]
    max_threads: int
    backend: str
    tensor_content: bool
    check_method_name: bool
    tls: ListenRequest.Tls
    channel_arguments: _containers.RepeatedCompositeFieldContainer[ListenRequest.ChannelArgument]
    health: bool
    reflection: bool
    rest: ListenRequest.Rest
    request_memory_bytes: int
    def __init__(self, port: _Optional[int] = ..., socket_paths: _Optional[_Iterable[str]] = ..., max_threads: _Optional[int] = ..., backend: _Optional[str] = ..., tensor_content: bool = ..., check_method_name: bool = ..., tls: _Optional[_Union[ListenRequest.Tls, _Mapping]] = ..., channel_arguments: _Optional[_Iterable[_Union[ListenRequest.ChannelArgument, _Mapping]]] = ..., health: bool = ..., reflection: bool = ..., rest: _Optional[_Union[ListenRequest.Rest, _Mapping]] = ..., request_memory_bytes: _Optional[int] = ...) -> None: ...

class ListenReply(_message.Message):
    __slots__ = ("port",)
    PORT_FIELD_NUMBER: _ClassVar[int]
    port: int
    def __init__(self, port: _Optional[int] = ...) -> None: ...

class Statuses(_message.Message):
    __slots__ = ("models", "trouble", "notices")
    class Model(_message.Message):
        __slots__ = ("name", "configured", "versions")
        NAME_FIELD_NUMBER: _ClassVar[int]
        CONFIGURED_FIELD_NUMBER: _ClassVar[int]
        VERSIONS_FIELD_NUMBER: _ClassVar[int]
        name: str
        configured: bool
        versions: _get_model_status_pb2.GetModelStatusResponse
        def __init__(self, name: _Optional[str] = ..., configured: bool = ..., versions: _Optional[_Union[_get_model_status_pb2.GetModelStatusResponse, _Mapping]] = ...) -> None: ...
    MODELS_FIELD_NUMBER: _ClassVar[int]
    TROUBLE_FIELD_NUMBER: _ClassVar[int]
    NOTICES_FIELD_NUMBER: _ClassVar[int]
    models: _containers.RepeatedCompositeFieldContainer[Statuses.Model]
    trouble: str
    notices: str
    def __init__(self, models: _Optional[_Iterable[_Union[Statuses.Model, _Mapping]]] = ..., trouble: _Optional[str] = ..., notices: _Optional[str] = ...) -> None: ...

class DrainRequest(_message.Message):
    __slots__ = ("most_millis",)
    MOST_MILLIS_FIELD_NUMBER: _ClassVar[int]
    most_millis: int
    def __init__(self, most_millis: _Optional[int] = ...) -> None: ...

class DescribeRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class DescribeReply(_message.Message):
    __slots__ = ("servables", "routes", "listening", "process_id")
    class Servable(_message.Message):
        __slots__ = ("load",)
        LOAD_FIELD_NUMBER: _ClassVar[int]
        load: LoadRequest
        def __init__(self, load: _Optional[_Union[LoadRequest, _Mapping]] = ...) -> None: ...
    SERVABLES_FIELD_NUMBER: _ClassVar[int]
    ROUTES_FIELD_NUMBER: _ClassVar[int]
    LISTENING_FIELD_NUMBER: _ClassVar[int]
    PROCESS_ID_FIELD_NUMBER: _ClassVar[int]
    servables: _containers.RepeatedCompositeFieldContainer[DescribeReply.Servable]
    routes: Routes
    listening: ListenRequest
    process_id: int
    def __init__(self, servables: _Optional[_Iterable[_Union[DescribeReply.Servable, _Mapping]]] = ..., routes: _Optional[_Union[Routes, _Mapping]] = ..., listening: _Optional[_Union[ListenRequest, _Mapping]] = ..., process_id: _Optional[int] = ...) -> None: ...

class StatsRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class StatsReply(_message.Message):
    __slots__ = ("families", "process_id")
    class Cell(_message.Message):
        __slots__ = ("labels", "count", "sum", "buckets")
        LABELS_FIELD_NUMBER: _ClassVar[int]
        COUNT_FIELD_NUMBER: _ClassVar[int]
        SUM_FIELD_NUMBER: _ClassVar[int]
        BUCKETS_FIELD_NUMBER: _ClassVar[int]
        labels: _containers.RepeatedScalarFieldContainer[str]
        count: int
        sum: float
        buckets: _containers.RepeatedScalarFieldContainer[int]
        def __init__(self, labels: _Optional[_Iterable[str]] = ..., count: _Optional[int] = ..., sum: _Optional[float] = ..., buckets: _Optional[_Iterable[int]] = ...) -> None: ...
    class Family(_message.Message):
        __slots__ = ("name", "label_names", "bounds", "cells", "gauge")
        NAME_FIELD_NUMBER: _ClassVar[int]
        LABEL_NAMES_FIELD_NUMBER: _ClassVar[int]
        BOUNDS_FIELD_NUMBER: _ClassVar[int]
        CELLS_FIELD_NUMBER: _ClassVar[int]
        GAUGE_FIELD_NUMBER: _ClassVar[int]
        name: str
        label_names: _containers.RepeatedScalarFieldContainer[str]
        bounds: _containers.RepeatedScalarFieldContainer[float]
        cells: _containers.RepeatedCompositeFieldContainer[StatsReply.Cell]
        gauge: bool
        def __init__(self, name: _Optional[str] = ..., label_names: _Optional[_Iterable[str]] = ..., bounds: _Optional[_Iterable[float]] = ..., cells: _Optional[_Iterable[_Union[StatsReply.Cell, _Mapping]]] = ..., gauge: bool = ...) -> None: ...
    FAMILIES_FIELD_NUMBER: _ClassVar[int]
    PROCESS_ID_FIELD_NUMBER: _ClassVar[int]
    families: _containers.RepeatedCompositeFieldContainer[StatsReply.Family]
    process_id: int
    def __init__(self, families: _Optional[_Iterable[_Union[StatsReply.Family, _Mapping]]] = ..., process_id: _Optional[int] = ...) -> None: ...
