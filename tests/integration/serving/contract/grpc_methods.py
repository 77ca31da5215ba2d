"""What the methods of both gRPC services do."""

from __future__ import annotations

from integration.serving.contract.row import differs, kept, not_built

TITLE = "gRPC: methods"

ROWS = (
    kept(
        "PredictionService and ModelService on one gRPC port",
        "test_upstream_names.py::testGetModelStatus",
        "test_upstream_names.py::testPredictSavedModel",
    ),
    not_built(
        "ProfilerService",
        "it profiles TensorFlow's C++ runtime; `--enable_profiler` is accepted and ignored",
        "test_process.py::test_each_flag_without_effect_is_named_once",
    ),
    kept(
        "SessionRun and PredictStreamed are not served",
        "test_data_plane.py::test_a_method_that_nobody_has_is_unimplemented",
    ),
    kept(
        "grpc.health.v1, off by default",
        "test_health.py::test_grpc_health_says_serving_and_notifies_watchers_of_the_end",
        "test_health.py::test_grpc_health_is_off_without_its_flag",
    ),
    kept(
        "grpc.health.v1 does not depend on a model",
        "test_health.py::test_rest_health_follows_the_model_and_grpcs_does_not",
    ),
    differs(
        "no server reflection",
        "it is off by default here too; `--enable_grpc_reflection` turns it on",
        "test_reflection.py::test_services_and_their_messages_are_described",
        "test_reflection.py::test_it_is_off_without_its_flag",
    ),
    kept(
        "messages above gRPC's usual 4 MB",
        "test_tensors.py::test_a_large_tensor_comes_back_as_it_was",
        "test_predict.py::test_messages_larger_than_grpcs_default_pass_both_ways",
    ),
    kept(
        "listens on every interface",
        "test_grpc_flags.py::test_every_interface_is_listened_on",
    ),
    kept(
        "a Unix socket in addition to the port, or alone",
        "test_grpc_flags.py::test_a_socket_answers_beside_the_port",
        "test_grpc_flags.py::test_a_socket_answers_alone",
        "test_upstream_names.py::testPredictUDS",
    ),
    kept(
        "long error details are cut at 1024 characters and marked",
        "test_request_errors.py::test_a_long_message_is_cut_and_marked",
        "test_request_errors.py"
        "::test_metadata_that_processes_of_the_server_once_sent_changes_nothing",
    ),
    differs(
        "the client's deadline ends the run",
        (
            "the client gets its error in time; a run that is usually short, in a model "
            "without a loop, continues to its end"
        ),
        "test_predict.py::test_the_clients_deadline_ends_the_run",
    ),
    kept(
        "Predict: values and the version and signature that answered",
        "test_predict.py::test_a_tensorflow_1_model_answers_with_values_and_what_answered",
        "test_upstream_names.py::testPredictSavedModel",
    ),
    kept(
        "Predict: an empty signature name means `serving_default`",
        "test_predict.py::test_a_tensorflow_1_model_answers_with_values_and_what_answered",
    ),
    kept(
        "Predict: a signature is chosen by name",
        "test_upstream_names.py::test_tf_saved_model_save_multiple_signatures",
    ),
    kept(
        "Predict: an absent input takes the signature's default",
        "test_predict.py::test_a_tensorflow_2_model_takes_its_default_for_an_absent_input",
    ),
    kept(
        "Predict: `output_filter` chooses outputs",
        "test_predict.py::test_an_output_filter_chooses_the_outputs",
    ),
    kept(
        "Predict: the method name of the signature is not checked unless a flag asks for it",
        "test_grpc_flags.py::test_the_check_refuses_signatures_of_another_kind",
    ),
    kept(
        "Predict: a graph may keep state between requests",
        "test_predict.py::test_state_of_a_model_is_kept_between_requests",
    ),
    kept(
        "models saved by TensorFlow 1, TensorFlow 2 and Keras",
        "test_upstream_names.py::test_tf_saved_model_save",
        "test_upstream_names.py::test_sequential_keras_saved_model_save",
        "test_predict.py::test_a_tensorflow_1_model_answers_with_values_and_what_answered",
    ),
    not_built(
        "a Keras model made under a MirroredStrategy",
        "as Keras 3 saves it, a TensorFlow 1 session does not get its values",
    ),
    kept(
        "Classify: label and score of each class",
        "test_upstream_names.py::testClassify",
        "test_upstream_names.py::testClassifyTf2",
    ),
    kept(
        "Classify: a missing label is empty",
        "test_rest_predict.py::test_classify_gives_label_and_score_of_each_class",
    ),
    kept(
        "Classify: a missing score is 0",
        "test_example_signatures.py::test_classify_gives_labels_without_scores_the_score_0",
    ),
    kept(
        "Regress: a value for each example",
        "test_upstream_names.py::testRegress",
        "test_upstream_names.py::testRegressTf2",
    ),
    kept(
        "Classify and Regress: the context is merged into each example",
        "test_rest_predict.py::test_regress_gives_a_value_for_each_example_and_uses_the_context",
    ),
    kept(
        "MultiInference: tasks are answered in their order",
        "test_multi_inference.py::test_each_task_is_answered_in_its_order",
        "test_upstream_names.py::testMultiInference",
        "test_upstream_names.py::testMultiInferenceTf2",
    ),
    kept(
        "MultiInference: the first task chooses the version",
        "test_multi_inference.py::test_the_first_task_chooses_the_version",
    ),
    kept(
        "GetModelMetadata: `signature_def`, packed, with an empty signature name",
        "test_model_metadata.py::test_grpc_metadata_names_the_version_and_packs_the_signatures",
        "test_upstream_names.py::testGetModelMetadata",
    ),
    kept(
        "GetModelStatus: every version since the start, the highest first",
        "test_lifecycle.py::test_a_new_version_takes_over_under_load_without_a_failed_request",
        "test_reload.py::test_status_keeps_the_versions_of_every_model_there_was",
        "test_upstream_names.py::testGetModelStatus",
    ),
    kept(
        "GetModelStatus: one version; a label is ignored",
        "test_model_status.py::test_a_version_may_be_asked_for_and_a_label_does_not_matter",
    ),
    kept(
        "GetModelStatus: states START to END",
        "test_lifecycle.py::test_a_running_request_keeps_its_version",
        "test_several_models.py::test_a_slow_load_of_one_model_holds_up_no_other",
    ),
    kept(
        "HandleReloadConfigRequest: answered when new models serve",
        "test_reload.py::test_a_new_model_serves_when_the_call_returns",
    ),
    kept(
        "HandleReloadConfigRequest: removed models unload after the reply",
        "test_reload.py::test_a_model_that_is_left_out_unloads",
    ),
    differs(
        "HandleReloadConfigRequest: waits for a model without versions",
        (
            "it waits too, but does not block other reloads; if the model is removed meanwhile, "
            "the wait ends with ABORTED"
        ),
        "test_reload.py::test_a_new_model_without_versions_is_waited_for_until_the_caller_leaves",
        "test_forwarded_calls.py::test_reloads_that_wait_leave_threads_for_others_and_give_theirs_back_when_cancelled",
        "test_forwarded_calls.py::test_forwarded_calls_are_bounded",
        "test_reload.py::test_a_wait_ends_when_its_model_is_removed_again",
    ),
    kept(
        "HandleReloadConfigRequest: a failed new model is the error of the call",
        "test_reload.py::test_a_new_model_that_cannot_be_loaded_is_the_answer",
    ),
    kept(
        "HandleReloadConfigRequest: not written to the configuration file",
        "test_reload.py::test_what_a_call_configured_lasts_until_the_file_is_read_again",
    ),
    differs(
        "HandleReloadConfigRequest: `metric_names` and the metrics of its reply",
        "here the increase is over all labels, there over the first ones; Prometheus' names are "
        "accepted too",
        "test_reload.py::test_the_reply_shows_how_much_metrics_have_grown",
        "monitoring/test_metrics.py::test_a_metric_has_the_sum_of_its_labels",
    ),
    kept(
        "ModelSpec: version, label, or neither for the newest",
        "test_predict.py::test_a_version_may_be_asked_for",
        "test_labels.py::test_a_label_chooses_a_version_over_both_wires",
    ),
    kept(
        "outputs in typed fields; `tensor_content` with a flag",
        "test_tensors.py::test_both_forms_are_understood_and_typed_fields_come_back",
        "test_grpc_flags.py::test_outputs_may_be_one_piece_of_bytes",
    ),
    kept(
        "inputs in typed fields or `tensor_content`; a short list repeats its last value",
        "predict_wire_test.cc::the order of fields and the number of pieces make no difference",
        "predict_wire_test.cc::a short list repeats its last value, a long one is cut, an "
        "empty one means zeros",
        "test_predict.py::test_typed_values_and_tensor_content_mean_the_same",
    ),
    differs(
        "a short list fills a tensor of any size",
        "a tensor above 256 MB may be at most 16 times the size of its list; more is refused",
        "predict_wire_test.cc::what is no tensor is null",
    ),
    kept(
        "strings may hold any bytes",
        "test_predict.py::test_strings_come_back_as_they_went",
    ),
    kept(
        "scalars and empty tensors",
        "predict_wire_test.cc::scalars and empty tensors keep their shape",
    ),
    kept(
        "compression of calls",
        "test_predict.py::test_a_call_may_be_compressed",
    ),
)
