"""Models, versions, labels, batching parameters, warm-up files."""

from __future__ import annotations

from integration.serving.contract.row import added, differs, kept

TITLE = "Configuration files"

ROWS = (
    kept(
        "ModelServerConfig: `model_config_list` with name, base path, platform",
        "test_several_models.py::test_every_model_of_the_file_is_served",
        "config/test_model_config.py::test_what_is_right_is_taken",
    ),
    kept(
        "ModelServerConfig: an empty one serves nothing",
        "test_several_models.py::test_an_empty_file_serves_no_model",
    ),
    kept(
        "ModelServerConfig: a file that is not there ends the start",
        "test_several_models.py::test_a_file_that_is_not_there_ends_it",
    ),
    kept(
        "ModelServerConfig: an invalid one ends the start",
        "test_several_models.py::test_it_does_not_start_with",
        "config/test_model_config.py::test_a_list_is_refused_for",
    ),
    differs(
        "`custom_model_config`",
        "it is refused; the stock binary crashes",
        "config/test_model_config.py::test_a_custom_configuration_is_refused",
        "config/test_model_config.py::test_a_list_is_only_followed_by_a_list",
    ),
    kept(
        "unknown keys end the start",
        "test_several_models.py::test_a_file_that_is_no_configuration_ends_it",
    ),
    differs(
        "`logging_config`: a sample of the requests that succeed is logged",
        "the stock binary has no collector and refuses it; here a collector writes TFRecord files "
        "at `filename_prefix`",
        "test_request_logging.py::test_requests_are_logged_with_what_answered_them",
        "test_request_logging.py::test_requests_over_rest_are_logged_too",
        "test_request_logging.py::test_what_has_no_answer_of_a_model_is_not_logged",
        (
            "test_request_logging.py::"
            "test_a_sample_of_the_requests_is_logged_and_nothing_at_a_rate_of_0"
        ),
        "test_request_logging.py::test_models_with_the_same_prefix_share_its_files",
        "config/test_request_logging.py::test_only_models_with_a_rate_are_logged",
    ),
    kept(
        "`logging_config`: an unknown type of collector is NOT_FOUND",
        "test_request_logging.py::test_what_cannot_be_done_is_refused_and_what_was_goes_on",
        "test_request_logging.py::test_a_server_does_not_start_with_an_unknown_type",
        "config/test_request_logging.py::test_a_configuration_is_refused_for",
    ),
    kept(
        "`logging_config`: a reload or the polled file changes it",
        "test_request_logging.py::test_a_reload_begins_it_moves_it_and_ends_it",
        "test_request_logging.py::test_the_file_that_is_read_again_begins_and_ends_it",
    ),
    added(
        "files of logged requests can be used as warm-up files",
        "test_request_logging.py::test_a_logged_file_warms_up_the_next_version",
    ),
    added(
        "logged requests: new files by length and age, without overwriting any",
        (
            "test_request_log_writing.py::"
            "test_long_files_are_followed_by_others_and_none_is_written_over"
        ),
        "test_request_log_writing.py::test_old_files_and_removed_ones_are_followed_by_others",
    ),
    added(
        "logged requests: a full disk, a missing folder or a full queue does not fail requests",
        "test_request_log_writing.py::test_a_folder_that_is_not_there_costs_records_and_no_request",
        "test_request_log_writing.py::test_a_full_disk_costs_records_and_no_request",
        "test_request_log_writing.py::test_what_does_not_fit_in_memory_is_dropped_and_counted",
    ),
    added(
        "logged requests: logging continues after either process restarts",
        "test_request_logging.py::test_it_goes_on_when_a_process_is_started_again",
    ),
    differs(
        "polling: a file that cannot be read or applied is reported and ignored",
        "a lasting problem is reported only once",
        "test_reload.py::test_a_file_that_is_bad_meanwhile_is_reported_and_ignored",
    ),
    kept(
        "polling: the file is applied again every period",
        "test_reload.py::test_what_a_call_configured_lasts_until_the_file_is_read_again",
        "test_reload.py::test_the_file_is_read_again_every_period",
    ),
    differs(
        "polling waits for the models of the new file",
        "it does not wait; the next poll is on time",
        "test_reload.py::test_the_file_is_read_again_every_period",
    ),
    kept(
        ("version directories: names that are numbers, leading zeros allowed; others are ignored"),
        "test_lifecycle.py::test_status_over_rest_lists_the_highest_version_first",
        "lifecycle/test_versions.py::test_the_highest_number_is_the_newest",
        "lifecycle/test_versions.py::test_the_highest_legal_number_is_an_int64",
    ),
    differs(
        "version directories: a file with a number for a name",
        "only directories count",
        "test_lifecycle.py::test_status_over_rest_lists_the_highest_version_first",
    ),
    differs(
        "two directories with the same number",
        "one is used, and both are reported",
        "lifecycle/test_versions.py::test_of_two_directories_of_a_number_one_is_taken_and_both_are_named",
    ),
    kept(
        "policies `latest` (1 by default), `all`, `specific`",
        "test_several_models.py::test_a_policy_chooses_the_versions",
        "test_several_models.py::test_the_latest_versions_move_on",
        "lifecycle/test_versions.py::test_a_policy_chooses",
    ),
    differs(
        "a base path that is missing while polling unloads nothing",
        "it does not delay other models either",
        "test_several_models.py::test_a_base_path_that_is_gone_unloads_nothing",
        "test_lifecycle.py::test_other_files_of_a_version_and_a_missing_base_path_change_nothing",
        "lifecycle/test_versions.py::test_no_version_differs_from_a_base_path_that_cannot_be_read",
    ),
    kept(
        "a base path without versions unloads all",
        "test_several_models.py::test_a_base_path_without_versions_unloads_all_of_them",
        "test_lifecycle.py::test_the_last_version_gone_means_not_found",
    ),
    kept(
        "at the start the server waits for a missing version, with its ports closed",
        "test_process.py::test_without_a_version_it_waits_for_one",
        "test_process.py::test_a_missing_base_path_is_waited_for",
        "test_several_models.py::test_ports_open_when_every_model_serves",
    ),
    kept(
        "`specific`: an absent version is a warning",
        "test_several_models.py::test_a_specific_version_that_is_not_there_is_waited_for",
        "lifecycle/test_versions.py::test_a_specific_version_that_is_not_there_is_named_once",
    ),
    kept(
        "other files under the same version number are not noticed",
        "test_lifecycle.py::test_other_files_of_a_version_and_a_missing_base_path_change_nothing",
    ),
    kept(
        "labels: only for versions that already serve",
        "test_labels.py::test_a_label_of_a_version_that_does_not_serve_is_refused_with_the_whole_configuration",
        (
            "test_several_models.py::test_it_does_not_start_with[a label of a version that "
            "does not serve yet]"
        ),
    ),
    kept(
        "labels: with the flag a new label may point to any version",
        "test_labels.py::test_with_the_flag_a_new_label_may_point_anywhere_from_the_start",
    ),
    kept(
        "labels: a label does not move to a version that does not serve",
        "test_labels.py::test_even_with_the_flag_a_label_does_not_move_to_a_version_that_does_not_serve",
    ),
    kept(
        "labels: replaced as a whole",
        "test_labels.py::test_labels_are_replaced_as_a_whole",
        "test_labels.py::test_the_labels_of_a_model_that_was_removed_are_gone",
    ),
    differs(
        "labels: a configuration refused for them is remembered",
        "a refused configuration changes nothing",
        "test_labels.py::test_a_label_of_a_version_that_does_not_serve_is_refused_with_the_whole_configuration",
    ),
    differs(
        "a reload with `file_system_poll_wait_seconds` 0",
        (
            "each new base path is polled once; there none is polled, and the call waits for a "
            "new model until the caller leaves"
        ),
        "test_lifecycle.py::test_without_polling_each_base_path_is_looked_at_once",
    ),
    kept(
        "a reload replaces base path and policy",
        "test_reload.py::test_a_model_gets_another_base_path_and_policy",
        "test_reload.py::test_a_model_that_was_left_out_comes_back",
    ),
    kept(
        "MonitoringConfig, with its default path",
        "test_upstream_names.py::testPrometheusEndpoint",
        "test_metrics.py::test_the_path_is_the_files",
        "test_metrics.py::test_metrics_are_off_unless_enabled",
    ),
    kept(
        "SSLConfig: PEM contents, mutual TLS",
        "test_tls.py::test_the_grpc_port_speaks_tls_and_a_socket_does_not",
        "test_tls.py::test_both_ports_ask_for_certificates_of_clients",
    ),
    differs(
        "SSLConfig: `client_verify` without `custom_ca`",
        "it is refused, because no client could connect",
        "test_tls.py::test_it_does_not_start_when[no client could come in-ssl_config_file]",
    ),
    kept(
        "BatchingParameters in text form",
        "config/test_batching_parameters.py::test_the_file_of_tensorflow_serving_is_read",
        "config/test_batching_parameters.py::test_what_is_not_legal_is_refused",
    ),
    kept(
        "`max_batch_size` (1000); a larger request is refused",
        "test_batching.py::test_a_larger_request_than_a_batch_is_refused",
        "config/test_batching_parameters.py::test_defaults_are_those_of_tensorflow_serving",
    ),
    kept(
        "`batch_timeout_micros` (0)",
        "test_batching.py::test_a_batch_that_is_not_full_goes_when_its_first_request_has_waited",
    ),
    kept(
        "`max_enqueued_batches` (10); more are refused",
        "test_batching.py::test_a_full_queue_refuses",
        "config/test_batching_parameters.py::test_zero_enqueued_batches_count_as_one",
    ),
    kept(
        "`num_batch_threads` (CPUs), shared by all models",
        "config/test_batching_parameters.py::test_defaults_are_those_of_tensorflow_serving",
    ),
    kept(
        "`num_batch_threads`: round robin over the queues",
        "test_batching.py::test_queues_take_turns",
    ),
    kept(
        "`thread_pool_name`",
        "test_metrics.py::test_batches_are_measured",
        "config/test_batching_parameters.py::test_defaults_are_those_of_tensorflow_serving",
    ),
    kept(
        "`allowed_batch_sizes`: padded with the first row of the last request",
        "test_batching.py::test_a_batch_is_padded_with_the_first_row_of_its_last_request",
        "config/test_batching_parameters.py::test_what_is_not_legal_is_refused[no last size]",
    ),
    kept(
        "`pad_variable_length_inputs`",
        "test_batching.py::test_requests_of_different_shapes_are_padded_when_asked_for",
        "test_batching.py::test_requests_of_different_shapes_fail_together",
    ),
    kept(
        "`enable_large_batch_splitting`, `max_execution_batch_size`",
        "test_batching.py::test_a_large_request_is_split_and_put_together_again",
        "test_batching.py::test_a_queue_without_room_for_all_parts_refuses",
    ),
    kept(
        "a queue for each set of inputs and outputs",
        "test_batching.py::test_other_outputs_have_a_queue_of_their_own",
    ),
    kept(
        "Classify, Regress and several inputs run in batches too",
        "test_batching.py::test_examples_run_together",
        "test_batching.py::test_strings_and_several_inputs_run_together",
    ),
    differs(
        "all requests of a batch fail together",
        "a request of a wrong type fails alone",
        "test_batching.py::test_a_request_of_a_wrong_type_fails_alone",
        "test_batching.py::test_requests_of_different_shapes_fail_together",
    ),
    kept(
        "inputs and outputs that cannot be part of a batch",
        "test_batching.py::test_what_cannot_be_part_of_a_batch_is_refused",
        "test_batching.py::test_inputs_of_different_sizes_are_refused",
    ),
    kept(
        "a run without inputs in a batch",
        "test_batching.py::test_what_cannot_be_part_of_a_batch_is_refused[no input]",
    ),
    kept(
        "a request that times out in the queue, 429",
        "test_batching.py::test_a_request_whose_time_is_up_in_the_queue_is_refused",
    ),
    kept(
        "warm-up: requests of the file run before the version serves",
        "test_warm_up.py::test_the_requests_of_the_file_run_before_it_serves",
    ),
    kept(
        "warm-up: Classify, Regress and MultiInference records",
        "test_warm_up.py::test_the_requests_of_the_file_run_before_it_serves",
        "test_warm_up.py::test_a_version_whose_warm_up_fails_does_not_serve[a regression]",
        ("test_warm_up.py::test_a_version_whose_warm_up_fails_does_not_serve[several inferences]"),
    ),
    kept(
        "warm-up: other records are UNIMPLEMENTED",
        "test_warm_up.py::test_a_version_whose_warm_up_fails_does_not_serve[another kind]",
    ),
    kept(
        "warm-up: at most 1000 records",
        "test_warm_up.py::test_a_version_whose_warm_up_fails_does_not_serve[too many]",
    ),
    kept(
        "warm-up: a failure fails the load",
        "test_warm_up.py::test_a_version_whose_warm_up_fails_does_not_serve[one fails]",
        "test_warm_up.py::test_a_version_whose_warm_up_fails_does_not_serve[no record]",
        "test_warm_up.py::test_a_damaged_file_fails_the_load",
        "wire/test_tf_records.py::test_a_damaged_byte_is_found_as_tensorflow_finds_it",
        "wire/test_tf_records.py::test_a_file_that_is_cut_anywhere_is_read_as_tensorflow_does",
        "test_warm_up.py::test_a_version_that_does_not_warm_up_leaves_the_older_one",
    ),
    differs(
        "warm-up without a file",
        "signatures without side effects run on zeros",
        "test_warm_up.py::test_without_a_file_signatures_that_change_nothing_run_twice",
        "test_warm_up.py::test_without_a_file_signatures_that_change_something_do_not_run",
        "test_warm_up.py::test_without_a_file_a_version_of_tensorflow_1_keeps_its_variables",
        "test_warm_up.py::test_without_a_file_a_signature_that_fails_keeps_no_version_from_serving",
    ),
)
