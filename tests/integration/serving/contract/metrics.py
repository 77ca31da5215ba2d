"""What Prometheus reads."""

from __future__ import annotations

from integration.serving.contract.row import added, differs, kept, not_built

TITLE = "Metrics"

ROWS = (
    kept(
        "names and types (`# HELP` lines are added)",
        "test_metrics.py::test_buckets_are_tf_servings_and_cumulative",
        "monitoring/test_metrics.py::test_a_family_without_labels_has_empty_braces_as_tf_servings",
        "test_metrics.py::test_every_metric_but_tensorflows_own_is_documented",
    ),
    kept(
        "`:tensorflow:serving:request_count`",
        "test_metrics.py::test_requests_are_counted_as_tf_serving_counts_them",
    ),
    kept(
        "`:tensorflow:serving:request_latency`, with its buckets",
        "test_metrics.py::test_requests_are_counted_as_tf_serving_counts_them",
        "test_metrics.py::test_buckets_are_tf_servings_and_cumulative",
        "monitoring/test_metrics.py::test_a_value_is_in_the_bucket_that_ends_after_it",
    ),
    kept(
        "`:tensorflow:serving:runtime_latency`",
        "test_metrics.py::test_requests_are_counted_as_tf_serving_counts_them",
    ),
    kept(
        "`:tensorflow:serving:request_example_counts`, `:request_example_count_total`",
        "test_metrics.py::test_requests_are_counted_as_tf_serving_counts_them",
    ),
    kept(
        "`:tensorflow:serving:request_log_count`",
        "test_request_logging.py::test_requests_are_logged_with_what_answered_them",
        "test_request_log_writing.py::test_a_folder_that_is_not_there_costs_records_and_no_request",
        "test_request_log_writing.py::test_what_does_not_fit_in_memory_is_dropped_and_counted",
    ),
    differs(
        "`:tensorflow:serving:model_warmup_latency`, `:model_warmup_records_read`",
        "the latency excludes reading the file; `status` is only the code; failed runs are "
        "measured too; the label of the second metric is a guess",
        "test_metrics.py::test_warm_up_is_measured",
    ),
    not_built(
        "`:mlmd_map`",
        (
            "its value is a text, the UUID of ML Metadata in `assets.extra/mlmd_uuid`; "
            "TensorFlow Serving's page shows 0 for it"
        ),
    ),
    kept(
        "batching: queuing latency, runs, padding, sizes",
        "test_metrics.py::test_batches_are_measured",
    ),
    differs(
        "TensorFlow's own metrics (`:tensorflow:core:..`, `:tensorflow:cc:..`)",
        "metrics without a value yet are left out, and so are non-integer values (0 there)",
        "test_metrics.py::test_tensorflow_exposes_what_it_counts_itself",
        "monitoring/test_metrics.py::test_a_gauge_is_that_of_the_process_that_runs",
    ),
    differs(
        "names that clients make up",
        "at most 4,096 sets of labels are kept; further ones are counted together",
        "test_metrics.py::test_names_that_clients_make_up_do_not_fill_the_memory",
        "test_metrics.py::test_a_long_name_is_no_label",
        "monitoring/test_metrics.py::test_further_labels_are_counted_together",
        "test_metrics.py::test_names_in_labels_are_escaped",
    ),
    added(
        "counts by version and signature, state of versions, build",
        "test_metrics.py::test_versions_and_signatures_are_kept_apart",
    ),
    added(
        "the page is there again as soon as the control process is, which knows of all parts",
        "test_rest_goes_on.py::test_the_page_of_metrics_needs_the_control_process",
        "test_metrics.py::test_clients_call_no_method_of_the_processes_among_themselves",
    ),
    added(
        "times of the store's reads as a histogram, `hotrow_store_read_seconds`",
        "test_read_budget.py::test_the_times_of_reads_are_a_histogram",
    ),
    added(
        "counts continue when the executable or the control process restarts",
        "test_metrics.py::test_counts_go_on_when_the_executable_starts_again",
        "test_metrics.py::test_counts_of_requests_go_on_when_the_control_process_starts_again",
        "monitoring/test_metrics.py::test_counts_of_a_process_that_ended_are_kept",
    ),
)
