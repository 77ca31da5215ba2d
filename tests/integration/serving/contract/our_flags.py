"""Flags that `platform serve` has beside those of `tensorflow_model_server`."""

from __future__ import annotations

from integration.serving.contract.row import added

ROWS = (
    added(
        "`store`, `drain_seconds`",
        "test_exported_model.py::test_an_export_scores_the_same_with_its_store_another_store_and_none",
        "test_data_plane.py::test_a_run_that_never_ends_does_not_keep_it",
    ),
    added(
        "`log_format`",
        "test_log.py::test_every_line_of_every_process_is_of_one_form",
        "test_log.py::test_an_error_before_the_start_is_of_that_form_too",
        "test_log.py::test_a_flag_that_cannot_be_read_is_of_that_form_too",
        "monitoring/test_log_line.py::test_a_line_is_read",
        "monitoring/test_log_line.py::test_what_is_in_no_form_is_a_warning_of_now",
        "monitoring/test_log_line.py::test_a_time_that_is_none_is_now",
        "monitoring/test_log_line.py::test_the_last_words_of_a_command_stay_as_they_are",
        "monitoring/test_log_line.py::test_pythons_records_are_read_back",
    ),
    added(
        "`admin_port`, `admin_host`, `admin_token_file`, `admin_ssl_config_file`: reloads and "
        "metrics are answered there alone",
        "test_admin_port.py::test_the_ports_of_clients_answer_neither_reloads_nor_metrics",
        "test_admin_port.py::test_the_admin_port_reloads_for_a_token",
        "test_admin_port.py::test_the_admin_port_has_the_metrics_for_a_token",
        "test_admin_port.py::test_tokens_are_read_again_when_their_file_changes",
        "test_admin_port.py::test_the_next_control_process_has_the_port_again",
        "test_admin_port.py::test_certificates_of_clients_open_it",
        "test_admin_port.py::test_it_listens_on_this_machine_alone_without_a_guard",
        "test_admin_port.py::test_a_host_of_another_machine_is_refused",
        "test_admin_port.py::test_flags_that_guard_nothing_are_refused",
    ),
    added(
        "`check_load_memory`",
        "test_lethal_versions.py::test_a_version_that_needs_more_memory_than_is_left_is_refused_with_the_numbers",
        "test_side_by_side.py::test_loads_side_by_side_have_room_together",
    ),
    added(
        "`unready_after_seconds`, `restart_after_seconds`, `load_timeout_seconds`",
        "test_hangs.py::test_an_executable_that_hangs_is_not_ready_and_is_started_again",
        "test_hangs.py::test_an_executable_that_goes_on_is_ready_again",
        "test_hangs.py::test_a_control_process_that_was_stopped_restarts_nothing",
        "test_hangs.py::test_a_new_control_process_does_not_wait_for_one_that_hangs",
        "test_hangs.py::test_a_load_that_hangs_fails_at_its_limit",
        "test_hangs.py::test_limits_that_contradict_each_other_are_refused",
    ),
    added(
        "`enable_grpc_reflection`",
        "test_reflection.py::test_services_and_their_messages_are_described",
        "test_reflection.py::test_it_takes_nothing_from_the_services",
    ),
    added(
        "`request_log_root`",
        "test_request_logging.py::test_no_reload_moves_it_out_of_its_root",
    ),
    added(
        "`request_log_file_bytes`, `request_log_file_seconds`, `request_log_queue_bytes`",
        (
            "test_request_log_writing.py::"
            "test_long_files_are_followed_by_others_and_none_is_written_over"
        ),
        "test_request_log_writing.py::test_old_files_and_removed_ones_are_followed_by_others",
        "test_request_log_writing.py::test_what_does_not_fit_in_memory_is_dropped_and_counted",
        "config/test_request_logging.py::test_bounds_are_at_least_1",
    ),
    added(
        "`rest_api_ssl_config_file`",
        "test_tls.py::test_the_rest_port_speaks_tls",
    ),
    added(
        "`request_memory_bytes`; a REST request waits for a thread at most "
        "`rest_api_timeout_in_ms`",
        "test_rest_http.py::test_bodies_have_a_bound_together",
        "test_rest_http.py::test_short_values_need_more_memory_than_their_body",
        "test_rest_http.py::test_requests_over_grpc_have_the_same_bound",
        "config/test_rest_port.py::test_requests_have_a_quarter_of_the_memory_unless_told",
        "config/test_rest_port.py::test_limits_of_requests_are_at_least_1",
        "test_rest_http.py::test_a_request_waits_for_a_thread_as_long_as_a_run_may_take",
    ),
    added(
        "`rest_api_max_body_bytes`, `rest_api_read_timeout_in_ms`",
        "test_rest_http.py::test_a_long_body_is_refused_before_it_is_read",
        "test_rest_http.py::test_a_slow_body_is_refused",
    ),
    added(
        "`store`, `store_user`, `store_password_file`, `store_ca`, `store_cert`, `store_key`, "
        "`store_hosts`, `store_timeout_ms`, `store_max_reads`, `on_store_failure`",
        "test_redis_rows.py::test_scores_from_redis_are_those_of_training",
        "test_redis_rows.py::test_without_redis_a_request_fails_within_its_time_budget",
        "test_read_budget.py::test_lookups_of_a_request_share_one_budget",
        "test_read_budget.py::test_the_deadline_of_a_request_ends_its_reads",
        "test_read_budget.py::test_a_read_that_outlasts_its_request_is_no_fault_of_the_store",
        "test_redis_rows.py::test_a_node_behind_tls_that_dies_fails_requests_in_time_until_it_is_back",
        "test_redis_rows.py::test_a_wrong_authority_ends_the_load_with_one_line",
        (
            "test_store_trust.py::test_a_store_that_only_the_manifest_names"
            "_gets_no_password_unless_its_host_is_allowed"
        ),
        "test_store_trust.py::test_the_executable_does_not_inherit_the_password",
        (
            "test_store_trust.py::test_a_server_with_the_readers_rights_alone"
            "_serves_and_follows_cuts"
        ),
        "test_store_trust.py::test_a_server_that_may_not_subscribe_says_so_once_and_polls",
        "test_redis_rows.py::test_without_redis_default_rows_answer_when_they_may",
        "test_redis_rows.py::test_a_store_that_lost_its_rows_is_never_taken_for_one_without_them",
        "test_redis_rows.py::test_a_generation_lives_as_long_as_a_server_uses_it",
        "test_redis_rows.py::test_a_control_process_that_starts_again_without_redis_changes_nothing",
        "test_redis_rows.py::test_default_rows_are_reported_for_each_request_of_a_batch",
        "test_redis_rows.py::test_a_store_is_inspected",
        "test_redis_faults.py::test_no_prediction_fails_while_slots_of_a_cluster_move",
        "test_redis_faults.py::test_a_frozen_redis_costs_its_time_budget_until_the_breaker_opens",
        "test_redis_faults.py"
        "::test_requests_with_cached_rows_do_not_wait_for_a_store_that_others_wait_for",
        "test_redis_faults.py::test_a_redis_that_forgot_its_rows_changes_no_score_silently",
        "test_exactness.py::test_rows_of_other_types_are_served_as_they_are_stored",
    ),
    added(
        "`cache_rows`, `cache_bytes`, `cache_policy`, `cache_warm_up_rows_per_second`",
        "test_redis_rows.py::test_rows_in_the_cache_are_served_without_redis",
        "test_cache_warm_up.py::test_servers_that_start_at_once_warm_up_at_a_bounded_rate",
        "test_cache_warm_up.py::test_the_cache_is_warm_before_a_version_serves",
        "test_redis_faults.py"
        "::test_a_dead_primary_is_not_noticed_with_a_warm_cache_and_soon_forgotten_without",
        "test_exactness.py"
        "::test_concurrent_clients_get_the_embeddings_and_scores_of_training_to_the_bit",
    ),
    added(
        "`cache_device`, `gpu_cache_bytes`",
        "test_cache_device.py::test_a_gpu_that_is_not_there_is_refused_by_name",
        "test_cache_device.py::test_auto_without_a_gpu_serves_from_memory_and_says_so",
        "test_cache_device.py::test_a_machine_with_a_gpu_serves_the_same",
        "test_cache_device.py::test_a_gpu_beyond_those_of_the_machine_is_refused",
        "test_cuts.py::test_cuts_are_seen_whole_and_in_order",
        "test_exactness.py"
        "::test_concurrent_clients_get_the_embeddings_and_scores_of_training_to_the_bit",
    ),
)
