"""Flags of `tensorflow_model_server`, with their defaults; then ours."""

from __future__ import annotations

from integration.serving.contract import our_flags
from integration.serving.contract.row import differs, kept, not_built

TITLE = "Command line"

ROWS = (
    kept(
        "`port` (8500)",
        "test_process.py::test_a_port_in_use_is_one_line_and_exit_code_255[port]",
    ),
    kept(
        "`port` 0 turns gRPC's port off",
        "test_grpc_flags.py::test_a_socket_answers_alone",
        "test_grpc_flags.py::test_without_port_and_socket_it_does_not_start",
    ),
    differs(
        "a port that another server listens on",
        "the port is refused, not shared",
        "test_process.py::test_a_second_server_does_not_share_a_port",
        "test_process.py::test_a_port_in_use_is_one_line_and_exit_code_255",
    ),
    kept(
        "`rest_api_port` (0)",
        "test_process.py::test_a_port_in_use_is_one_line_and_exit_code_255[rest_api_port]",
    ),
    kept(
        "`rest_api_num_threads` (4 for each CPU)",
        "test_health.py::test_rest_health_answers_while_all_threads_are_busy",
    ),
    kept(
        "`rest_api_timeout_in_ms` (30000)",
        "test_rest_errors.py::test_a_run_that_takes_too_long_is_ended",
    ),
    kept(
        "`rest_api_enable_cors_support` (false)",
        "test_rest_http.py::test_browsers_may_read_replies_when_asked_for",
    ),
    kept(
        "`grpc_socket_path` (empty)",
        "test_grpc_flags.py::test_a_socket_answers_beside_the_port",
        "test_grpc_flags.py::test_a_socket_is_refused_when",
    ),
    differs(
        "`grpc_socket_path`: a file that is there",
        "the server does not take over a socket that another server listens on",
        "test_grpc_flags.py::test_a_socket_that_a_server_listens_on_is_not_taken",
        "test_grpc_flags.py::test_a_socket_that_a_dead_server_left_is_taken",
    ),
    kept(
        "`grpc_channel_arguments` (empty)",
        "test_grpc_flags.py::test_settings_reach_grpcs_server_and_unknown_ones_do_not_matter",
        "test_upstream_names.py::testGoodGrpcChannelArgs",
    ),
    differs(
        "`grpc_channel_arguments`: an entry without a value",
        "the entry is refused",
        "test_grpc_flags.py::test_a_setting_without_a_value_is_refused",
    ),
    differs(
        "`grpc_max_threads` (1024)",
        (
            "requests are not bound to threads; the flag limits how many are answered at a "
            "time, by default 1024 (there 4 for each CPU)"
        ),
        "test_data_plane.py::test_more_than_may_run_at_once_are_refused_at_once",
        "test_data_plane.py::test_many_clients_at_once_are_all_answered",
    ),
    kept(
        ("`model_name` (default), `model_base_path` (empty); ignored with a configuration file"),
        "test_several_models.py::test_every_model_of_the_file_is_served",
        "test_process.py::test_neither_base_path_nor_config_file_ends_it",
    ),
    differs(
        "`model_base_path`: a relative path",
        "the path is resolved",
        "test_process.py::test_a_relative_base_path_is_resolved",
    ),
    not_built(
        "`model_base_path`: a URI",
        "only `file:///...` works; other file systems (`s3://`, ...) are refused",
        "config/test_model_config.py::test_a_file_uri_is_a_path",
        "config/test_model_config.py::test_a_path_on_another_machine_is_refused",
    ),
    kept(
        "`model_config_file` (empty)",
        "test_upstream_names.py::testGoodModelConfig",
        "test_several_models.py::test_every_model_of_the_file_is_served",
    ),
    kept(
        "`model_config_file_poll_wait_seconds` (0)",
        "test_upstream_names.py::testModelConfigReload",
        "test_upstream_names.py::testModelConfigReloadWithZeroPollPeriod",
    ),
    kept(
        "`file_system_poll_wait_seconds` (1); 0 polls once, a negative value never",
        "test_lifecycle.py::test_without_polling_each_base_path_is_looked_at_once",
        "test_lifecycle.py::test_a_negative_time_between_looks_means_none_at_all",
    ),
    kept(
        "`allow_version_labels_for_unavailable_models` (false)",
        "test_labels.py::test_with_the_flag_a_new_label_may_point_anywhere_from_the_start",
        "test_labels.py::test_even_with_the_flag_a_label_does_not_move_to_a_version_that_does_not_serve",
    ),
    kept(
        (
            "`enable_batching` (false), `batching_parameters_file` (empty); the file alone "
            "is refused"
        ),
        "test_batching.py::test_a_server_with_wrong_parameters_does_not_start",
        "test_batching.py::test_parameters_without_batching_are_refused",
        "test_upstream_names.py::testPredictBatching",
    ),
    differs(
        "`batching_parameters_file`: read only at the start",
        "the file is read again when it changes",
        "test_batching.py::test_parameters_change_while_it_serves",
    ),
    kept(
        "`enable_per_model_batching_parameters` (false)",
        "test_batching.py::test_requests_run_together_and_each_gets_its_own_rows",
        "test_batching.py::test_a_version_without_parameters_does_not_batch",
    ),
    kept(
        "`max_num_load_retries` (5), `load_retry_interval_micros` (60000000)",
        "test_lifecycle.py::test_a_version_that_cannot_be_loaded_leaves_the_older_one_serving",
        "lifecycle/test_lifecycle.py::test_a_failed_load_is_retried_and_then_given_up",
        "lifecycle/test_lifecycle.py"
        "::test_without_retries_a_store_that_does_not_answer_ends_a_version",
    ),
    differs(
        "`num_load_threads` (0), `num_unload_threads` (0)",
        "with 0, models load in parallel instead of one after the other; a restarted executable "
        "loads its versions side by side, too",
        "test_several_models.py::test_threads_limit_how_many_versions_load_and_unload",
        "lifecycle/test_limited_threads.py::test_no_more_than_the_limit_work_at_a_time",
        "test_several_models.py::test_a_slow_load_of_one_model_holds_up_no_other",
        "test_side_by_side.py::test_a_restart_loads_models_side_by_side_and_opens_ports_then",
        "test_side_by_side.py::test_a_restart_loads_no_more_at_a_time_than_there_are_threads",
    ),
    differs(
        "`flush_filesystem_caches` (true)",
        "accepted and ignored: local file systems have no such cache",
        "test_process.py::test_each_flag_without_effect_is_named_once",
    ),
    kept(
        "`enable_model_warmup` (true), `num_request_iterations_for_warmup` (0)",
        "test_warm_up.py::test_nothing_runs_when_the_flag_says_so",
        "test_warm_up.py::test_the_requests_of_the_file_run_before_it_serves",
    ),
    kept(
        "`monitoring_config_file` (empty)",
        "test_metrics.py::test_the_path_is_the_files",
        "test_metrics.py::test_metrics_are_off_unless_enabled",
        "test_metrics.py::test_a_file_that_is_no_monitoring_config_is_refused",
    ),
    kept(
        "`ssl_config_file` (empty)",
        "test_tls.py::test_the_grpc_port_speaks_tls_and_a_socket_does_not",
        "test_tls.py::test_it_does_not_start_when",
        "test_tls.py::test_another_certificates_key_is_refused",
    ),
    not_built(
        "`use_alts_credentials` (false)",
        "it works only between machines of Google Cloud",
        "test_tls.py::test_alts_is_refused",
    ),
    kept(
        (
            "`tensorflow_session_parallelism`, `tensorflow_intra_op_parallelism`, "
            "`tensorflow_inter_op_parallelism` (0); setting all three is refused"
        ),
        "test_process.py::test_three_ways_to_choose_threads_are_one_too_many",
        "config/test_session_config.py::test_threads_are",
    ),
    kept(
        "`tensorflow_session_config_file` (empty)",
        "test_process.py::test_sessions_have_the_configuration_of_a_file",
        "test_process.py::test_a_session_configuration_that_is_none_ends_it",
        "config/test_session_config.py::test_flags_go_before_the_file",
    ),
    differs(
        "`platform_config_file` (empty); replaces the flags for batches, sessions and warm-up",
        (
            "the server reports replaced flags and fields without effect; it refuses to start with "
            "fixed inputs, sessions on other machines or a map without the platform `tensorflow`"
        ),
        "test_process.py::test_a_platform_config_file_takes_the_place_of_flags",
        "test_process.py::test_sessions_have_the_configuration_of_a_platform_config_file",
        "config/test_platform_config.py::test_it_says_how_models_are_loaded_and_run",
        "config/test_platform_config.py::test_flags_that_it_replaces_are_named",
        "config/test_platform_config.py::test_fields_and_platforms_without_effect_are_named",
        "config/test_platform_config.py::test_it_is_refused_for",
    ),
    kept(
        "`per_process_gpu_memory_fraction` (0)",
        "config/test_session_config.py::test_a_share_of_the_gpu",
    ),
    kept(
        "`saved_model_tags` (serve)",
        "test_process.py::test_the_graph_is_found_by_its_tags",
    ),
    kept(
        "`enable_signature_method_name_check` (false)",
        "test_grpc_flags.py::test_the_check_refuses_signatures_of_another_kind",
    ),
    kept(
        "`enable_grpc_healthcheck_service` (false)",
        "test_health.py::test_grpc_health_is_off_without_its_flag",
        "test_health.py::test_grpc_health_says_serving_and_notifies_watchers_of_the_end",
    ),
    kept(
        "`enable_serialization_as_tensor_content` (false)",
        "test_grpc_flags.py::test_outputs_may_be_one_piece_of_bytes",
    ),
    not_built(
        "`enable_profiler` (true)",
        "there is no profiler service; the flag is accepted and ignored",
        "test_process.py::test_each_flag_without_effect_is_named_once",
    ),
    not_built(
        "`prefer_tflite_model`, `num_tflite_pools`, `num_tflite_interpreters_per_pool`",
        "TensorFlow Lite models are not run; the flags are accepted and ignored",
        "test_process.py::test_each_flag_without_effect_is_named_once",
    ),
    differs(
        "`remove_unused_fields_from_bundle_metagraph` (true)",
        "accepted and ignored: whole graphs are never kept",
        "test_process.py::test_each_flag_without_effect_is_named_once",
    ),
    not_built(
        "`xla_cpu_compilation_enabled`, `xla_gpu_compilation_enabled`",
        "accepted and ignored: only functions marked for compilation are compiled",
        "test_process.py::test_each_flag_without_effect_is_named_once",
    ),
    kept(
        "`mixed_precision` (empty)",
        "config/test_session_config.py::test_mixed_precision_is_bfloat16",
        "config/test_session_config.py::test_another_mixed_precision_is_named",
    ),
    not_built(
        "`skip_initialize_tpu`",
        "there are no TPUs; the flag is accepted and ignored",
        "test_process.py::test_each_flag_without_effect_is_named_once",
    ),
    not_built(
        "`thread_pool_factory_config_file`",
        "runs use TensorFlow's own threads; the flag is accepted and ignored",
        "test_process.py::test_each_flag_without_effect_is_named_once",
    ),
    kept(
        "`version`",
        "test_process.py::test_the_versions_are_printed",
    ),
    kept(
        "a value that cannot be read: usage and exit code 255",
        "test_process.py::test_a_value_that_cannot_be_read_shows_the_usage_and_ends_with_255",
    ),
    kept(
        "an unknown flag is reported and ignored",
        "test_process.py::test_an_unknown_flag_is_named_and_left_alone",
    ),
    kept(
        "a failed start: `Failed to start server. Error: ..` and exit code 255",
        "test_process.py::test_a_first_version_that_cannot_be_loaded_ends_it",
    ),
    kept(
        "neither base path nor configuration file",
        "test_process.py::test_neither_base_path_nor_config_file_ends_it",
    ),
    kept(
        "a bad text proto: protobuf's line, then `Invalid protobuf file`",
        "test_several_models.py::test_a_file_that_is_no_configuration_ends_it",
        "test_upstream_names.py::testBadModelConfig",
        "test_tls.py::test_a_file_that_is_no_text_proto_is_refused",
    ),
    kept(
        (
            "the conventions of the Docker image: ports, MODEL_NAME, MODEL_BASE_PATH, "
            "further arguments"
        ),
        "test_container.py::test_the_entrypoint_serves_the_mounted_model",
        "test_container.py::test_entrypoints_for_tensorflow_model_server_find_it",
    ),
    *our_flags.ROWS,
)
