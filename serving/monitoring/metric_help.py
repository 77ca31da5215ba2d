"""What metrics mean, for the `# HELP` lines; `docs/serving.md` has the same table."""

from __future__ import annotations

_STORE = "A count of the store of rows in Redis."

HELP = {
    ":tensorflow:serving:request_count": "Requests that were answered, by status.",
    ":tensorflow:serving:request_latency": "Microseconds of a request that succeeded.",
    ":tensorflow:serving:runtime_latency": "Microseconds of a run of the model.",
    ":tensorflow:serving:request_example_counts": "Examples of a request.",
    ":tensorflow:serving:request_example_count_total": "Examples of all requests.",
    ":tensorflow:serving:request_log_count": "Requests that were logged, by status.",
    ":tensorflow:serving:model_warmup_latency": "Microseconds of a version's warm-up.",
    ":tensorflow:serving:model_warmup_records_read": "Requests that warm-up has read.",
    ":tensorflow:serving:batching_session:input_batch_size": "Rows of a request in a batch.",
    ":tensorflow:serving:batching_session:padding_size": "Rows that fill a batch up.",
    ":tensorflow:serving:batching_session:processed_batch_size": "Rows of a batch, filled up.",
    ":tensorflow:serving:batching_session:queuing_latency": "Microseconds in a batch queue.",
    ":tensorflow:serving:batching_session:wrapped_run_count": "Runs of batches.",
    "hotrow_requests_total": "Requests that were answered, by version and signature.",
    "hotrow_request_latency_microseconds": "Microseconds of a request that succeeded.",
    "hotrow_model_version_state": "1 for the state that a version is in.",
    "hotrow_model_version_failed": "1 for a version that is given up: all its loads failed.",
    "hotrow_server_is_silent": "1 while hotrow-server does not answer.",
    "hotrow_server_restarts_total": "Restarts of hotrow-server: it ended, or did not answer.",
    "hotrow_load_crashes_total": "Loads of a version that ended hotrow-server.",
    "hotrow_request_log_dropped_total": "Requests that should have been logged and were not.",
    "hotrow_build_info": "1, with the versions of the server and of TensorFlow.",
    "hotrow_cut_version": "The cut of rows that a version shows; 0: as exported.",
    "hotrow_cut_step": "The training step of what a version shows.",
    "hotrow_cuts_are_stale": "1 while a version cannot follow its store, or it is behind.",
    "hotrow_store_is_behind": "1 while the store has lost some of what a version shows.",
    "hotrow_store_rewinds_total": "Times that the store of a version went back in time.",
    "hotrow_unfolded_cuts": "Cuts in memory until all readers let them be folded.",
    "hotrow_unfolded_cut_bytes": "Bytes of the cuts in memory that are not folded.",
    "hotrow_unfolded_cut_seconds": "Since the commit of the oldest cut that is not folded.",
    "hotrow_cut_is_refused": "1 while a version does not take the newest cut.",
    "hotrow_cut_failures_total": "Attempts to take a cut that failed.",
    "hotrow_cuts_taken_total": "Cuts that a version took while it served.",
    "hotrow_cut_rows_read_total": "Rows that were read from cuts that are not folded yet.",
    "hotrow_fetched_rows_total": "Rows that were read from the store.",
    "hotrow_unknown_keys_total": "Looked-up keys that have no row: they read the default row.",
    "hotrow_failed_rows_total": "Rows that the store did not give in time.",
    "hotrow_default_rows_total": "Lookups that got a default row because their row failed.",
    "hotrow_cache_hits_total": "Distinct keys of requests that were in the cache.",
    "hotrow_cache_misses_total": "Distinct keys of requests that were not in the cache.",
    "hotrow_cache_inserted_rows_total": "Rows that came into the cache.",
    "hotrow_cache_evicted_rows_total": "Rows that left the cache for others.",
    "hotrow_cache_refused_rows_total": "Rows that were not frequent enough for the cache.",
    "hotrow_cache_rows": "Rows in the cache.",
    "hotrow_cache_slots": "Rows that the cache of a version has room for.",
    "hotrow_cache_warmed_rows": "Rows that warm-up brought into the cache of a version.",
    "hotrow_cache_bytes": "Bytes of the cache of a version.",
    "hotrow_shared_fetches_total": "Requests that waited for a row that another one read.",
    "hotrow_store_read_seconds": "Seconds of a read of the store, with its wait for a turn.",
    "hotrow_store_node_is_shut_out": "1 while a node of the store is not asked.",
}


def help_of(name: str) -> str | None:
    """Returns one line about a metric; None: it is TensorFlow's own."""
    return HELP.get(name, _STORE if name.startswith("hotrow_store_") else None)
