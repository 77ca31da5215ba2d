"""Paths, bodies, replies and errors over HTTP."""

from __future__ import annotations

from integration.serving.contract.row import added, differs, kept

TITLE = "REST"

ROWS = (
    kept(
        "off unless `--rest_api_port` is given; its port is not gRPC's",
        "test_process.py::test_one_port_for_both_wires_is_refused",
    ),
    differs(
        "no TLS, no authentication",
        "`--rest_api_ssl_config_file` turns on TLS, or mutual TLS, for the port",
        "test_tls.py::test_the_rest_port_speaks_tls",
        "test_tls.py::test_both_ports_ask_for_certificates_of_clients",
    ),
    kept(
        "HTTP/1.1; connections stay open",
        "test_rest_errors.py::test_a_connection_is_kept_after_an_error",
        "test_rest_http.py::test_a_connection_may_wait_longer_between_two_requests",
        "test_rest_http.py::test_many_clients_stay_connected",
    ),
    kept(
        "every interface, IPv6 and IPv4",
        "test_rest_http.py::test_every_interface_is_listened_on",
    ),
    kept(
        "paths are case-insensitive",
        "test_rest_predict.py::test_a_model_is_found_at[any case]",
    ),
    kept(
        "a query string is part of the path",
        "test_rest_errors.py::test_a_path_is_refused_when[there is a query]",
        "test_rest_errors.py::test_a_path_is_refused_when[a query is part of the name]",
    ),
    kept(
        "names are %-decoded",
        "test_rest_predict.py::test_a_model_is_found_at[percent-encoded name]",
    ),
    kept(
        "POST `:predict`, `:classify`, `:regress`",
        "test_upstream_names.py::testPredictREST",
        "test_upstream_names.py::testClassifyREST",
        "test_upstream_names.py::testRegressREST",
        "test_rest_predict.py::test_a_model_is_found_at[newest version]",
    ),
    kept(
        "`/versions/N`",
        "test_rest_predict.py::test_a_model_is_found_at[named version]",
    ),
    kept(
        "`/labels/L`",
        "test_labels.py::test_a_label_chooses_a_version_over_both_wires",
    ),
    kept(
        "a reload that was answered is seen by GET",
        "test_rest_goes_on.py::test_a_reload_that_was_answered_is_what_rest_says",
    ),
    kept(
        "GET of the status; a label is ignored",
        "test_upstream_names.py::testGetStatusREST",
        "test_lifecycle.py::test_status_over_rest_lists_the_highest_version_first",
    ),
    kept(
        "GET `/metadata`",
        "test_upstream_names.py::testGetModelMetadataREST",
        "test_model_metadata.py::test_rest_metadata_of_a_tensorflow_1_model_equals_the_golden_file",
    ),
    kept(
        "GET of the Prometheus path, exactly",
        "test_metrics.py::test_the_path_is_the_files",
    ),
    kept(
        "OPTIONS by `Origin`",
        "test_rest_http.py::test_options_answers_origins_of_the_web",
        "test_rest_http.py::test_options_without_an_origin_is_refused",
    ),
    kept(
        "no MultiInference over REST",
        "test_rest_errors.py::test_a_path_is_refused_when[the method is one of gRPC]",
    ),
    kept(
        "no reload over REST",
        "test_rest_errors.py::test_a_path_is_refused_when[a reload is asked for]",
        "test_rest_errors.py::test_a_path_is_refused_when[another configuration is put]",
    ),
    differs(
        "no list of models: GET `/v1/models` is refused",
        "it lists the configured models with the status of their versions",
        "test_rest_http.py::test_models_are_listed",
    ),
    differs(
        "no readiness",
        "GET `/v1/health/live` and `/v1/health/ready` report it",
        "test_health.py::test_rest_health_follows_the_model_and_grpcs_does_not",
        "test_health.py::test_rest_is_not_ready_while_the_executable_starts_again",
        "test_health.py::test_rest_health_answers_while_all_threads_are_busy",
        "test_rest_goes_on.py::test_health_says_why_predictions_are_not_answered",
    ),
    kept(
        "a path outside `/v1/`: a 404 page",
        "test_rest_errors.py::test_a_path_outside_the_api_is_an_html_page",
    ),
    kept(
        "an unknown path or a wrong verb inside `/v1/`: 400 `Malformed request`",
        "test_rest_errors.py::test_a_path_is_refused_when[the verb is wrong]",
        "test_rest_errors.py::test_a_path_is_refused_when[the verb is unknown]",
        "test_rest_errors.py::test_a_path_is_refused_when[the model is missing]",
    ),
    differs(
        "a version beyond int64: 400",
        "the body holds the error text; there the body is empty",
        "test_rest_errors.py::test_a_path_is_refused_when[the version is no int64]",
    ),
    kept(
        "version and label together: 400",
        "test_rest_errors.py::test_a_path_is_refused_when[version and label are given]",
    ),
    kept(
        "errors of routing: no such model, version or label",
        "test_rest_errors.py::test_a_path_is_refused_when[the model is not served]",
        "test_rest_errors.py::test_a_path_is_refused_when[the version is not loaded]",
        "test_rest_errors.py::test_a_path_is_refused_when[the label is unknown]",
        "test_rest_errors.py::test_a_path_is_refused_when[the version was never seen]",
        (
            "test_rest_errors.py::test_a_path_is_refused_when[metadata of a model that is "
            "not served]"
        ),
    ),
    kept(
        "an error is JSON with its whole text",
        "test_rest_errors.py::test_a_connection_is_kept_after_an_error",
        "test_rest_errors.py::test_a_long_message_is_whole_over_rest",
    ),
    kept(
        "replies are laid out as TensorFlow Serving's",
        "test_rest_predict.py::test_row_form_with_plain_values_is_laid_out_as_tensorflow_serving_does",
    ),
    kept(
        "HTTP codes by gRPC code",
        "http_status_test.cc::http_status: every gRPC code has TensorFlow Serving's HTTP status",
    ),
    kept(
        "`--rest_api_timeout_in_ms` ends a run with 504",
        "test_rest_errors.py::test_a_run_that_takes_too_long_is_ended",
    ),
    kept(
        "Predict: text after the object is ignored; NaN and Infinity are read",
        "test_rest_predict.py::test_numbers_that_json_does_not_know_are_read_and_written",
        "test_rest_numbers.py::test_numbers_that_json_does_not_know_are_written",
    ),
    kept(
        "Predict: rows of plain values",
        "test_rest_predict.py::test_row_form_with_plain_values_is_laid_out_as_tensorflow_serving_does",
        "test_upstream_names.py::testPredictREST",
    ),
    kept(
        "Predict: rows of objects; bare values for one output",
        "test_rest_predict.py::test_row_form_with_named_inputs_gives_bare_values_for_one_output",
    ),
    kept(
        "Predict: several inputs and outputs",
        "test_rest_predict.py::test_several_inputs_and_outputs_are_objects_in_both_forms",
    ),
    kept(
        "Predict: columns; scalars; surplus keys are ignored",
        "test_rest_predict.py::test_columnar_form_takes_lists_and_scalars",
        "test_upstream_names.py::testPredictColumnarREST",
    ),
    kept(
        "Predict: types of values",
        "test_tensors.py::test_rest_refuses_a_value",
        "test_rest_errors.py::test_a_body_is_refused_when[a string stands for a float]",
        "test_rest_errors.py::test_a_body_is_refused_when[a bool stands for a float]",
        "test_rest_errors.py::test_a_body_is_refused_when[a decimal stands for an integer]",
        "test_rest_predict.py::test_bools_and_doubles_keep_their_value",
    ),
    kept(
        "Predict: int8, int16 and uint8 are only checked against the range of int32",
        "test_tensors.py::test_rest_holds_small_integers_to_the_range_of_int32_only",
    ),
    kept(
        "Predict: other data types, 501",
        (
            "test_tensors.py::test_rest_refuses_a_value[float16-1-501-Conversion of JSON "
            "Value: 1 to type: half]"
        ),
    ),
    kept(
        "output: shortest floats, whole ones with `.0`",
        "test_rest_numbers.py::test_a_float_is_written_as_tensorflow_serving_does",
        "test_rest_numbers.py::test_a_float32_is_read_back_as_it_was_and_is_a_float",
        "test_rest_numbers.py::test_a_float64_is_read_back_as_it_was_and_is_a_float",
    ),
    kept(
        "output: strings raw, `*_bytes` as base64",
        "test_rest_predict.py::test_strings_go_and_come_as_text_or_as_base64",
        "test_rest_predict.py::test_bytes_that_are_no_text_come_back_as_they_went",
    ),
    kept(
        "output: half precision is refused",
        "test_rest_errors.py::test_a_body_is_refused_when[an output has no JSON form]",
    ),
    kept(
        "body: empty, no JSON, no object",
        "test_rest_errors.py::test_a_body_is_refused_when[the body is empty]",
        "test_rest_errors.py::test_a_body_is_refused_when[the body is no JSON]",
        "test_rest_errors.py::test_a_body_is_refused_when[it is a list]",
        "test_rest_errors.py::test_a_body_is_refused_when[it is a string of other bytes]",
        "test_rest_errors.py::test_a_body_is_refused_when[it is nested too deeply]",
    ),
    kept(
        "body: the signature",
        "test_rest_errors.py::test_a_body_is_refused_when[the signature's name is a number]",
        "test_rest_errors.py::test_a_body_is_refused_when[there is no such signature]",
    ),
    kept(
        "body: `instances` and `inputs`",
        "test_rest_errors.py::test_a_body_is_refused_when[there are no instances]",
        "test_rest_errors.py::test_a_body_is_refused_when[both forms are given]",
        "test_rest_errors.py::test_a_body_is_refused_when[instances is no list]",
        "test_rest_errors.py::test_a_body_is_refused_when[instances is empty]",
    ),
    kept(
        "body: values and objects among rows",
        (
            "test_rest_errors.py::test_a_body_is_refused_when[values lack the names of "
            "several inputs]"
        ),
        "test_rest_errors.py::test_a_body_is_refused_when[a value follows objects]",
        "test_rest_errors.py::test_a_body_is_refused_when[an object follows values]",
    ),
    kept(
        "body: keys of a row",
        "test_rest_errors.py::test_a_body_is_refused_when[an object has an unknown key]",
        "test_rest_errors.py::test_a_body_is_refused_when[an object lacks a key]",
    ),
    kept(
        "body: sizes and shapes of rows",
        "test_rest_errors.py::test_a_body_is_refused_when[rows differ in size]",
        "test_rest_errors.py::test_a_body_is_refused_when[rows differ in shape]",
        "test_rest_errors.py::test_a_body_is_refused_when[a row is uneven]",
        "test_rest_errors.py::test_a_body_is_refused_when[a row is nested unevenly]",
        "test_rest_errors.py::test_a_body_is_refused_when[a value is too high up]",
    ),
    kept(
        "body: columns",
        "test_rest_errors.py::test_a_body_is_refused_when[columns lack their names]",
        "test_rest_errors.py::test_a_body_is_refused_when[a column is missing]",
    ),
    kept(
        "body: base64",
        "test_rest_errors.py::test_a_body_is_refused_when[base64 is broken]",
        "test_rest_errors.py::test_a_body_is_refused_when[base64 has company]",
    ),
    kept(
        "reply: rows of outputs",
        "test_rest_errors.py::test_a_body_is_refused_when[an output has no rows]",
        "test_rest_errors.py::test_a_body_is_refused_when[outputs differ in their rows]",
    ),
    kept(
        "Classify and Regress: bodies and replies",
        "test_rest_predict.py::test_classify_gives_label_and_score_of_each_class",
        "test_rest_predict.py::test_regress_gives_a_value_for_each_example_and_uses_the_context",
    ),
    kept(
        "Classify and Regress: errors of `examples`",
        "test_rest_errors.py::test_classify_refuses_when[there are no examples]",
        "test_rest_errors.py::test_classify_refuses_when[examples is no list]",
        "test_rest_errors.py::test_classify_refuses_when[it is empty]",
        "test_rest_errors.py::test_classify_refuses_when[an example is a number]",
    ),
    kept(
        "Classify and Regress: errors of features",
        "test_rest_errors.py::test_classify_refuses_when[a feature is null]",
        "test_rest_errors.py::test_classify_refuses_when[a feature is mixed]",
        "test_rest_errors.py::test_classify_refuses_when[a feature is beyond int64]",
    ),
    kept(
        "JSON of the status",
        "test_upstream_names.py::testGetStatusREST",
    ),
    kept(
        "JSON of the metadata",
        "test_model_metadata.py::test_rest_metadata_of_a_tensorflow_1_model_equals_the_golden_file",
        "test_model_metadata.py::test_rest_metadata_of_a_tensorflow_2_model_equals_the_golden_file",
    ),
    kept(
        "CORS with a flag",
        "test_rest_http.py::test_browsers_may_read_replies_when_asked_for",
    ),
    kept(
        "request bodies in gzip",
        "test_rest_http.py::test_a_request_may_be_compressed",
        "test_rest_http.py::test_a_request_that_is_not_compressed_as_it_says_is_refused",
    ),
    added(
        "request bodies in zstd",
        "test_rest_http.py::test_a_request_may_be_compressed",
    ),
    differs(
        "replies are never compressed",
        "they are compressed if `Accept-Encoding` asks for it and they are long enough",
        "test_rest_http.py::test_a_reply_is_compressed_as_the_client_asks",
        "test_rest_http.py::test_a_small_reply_is_not_compressed",
    ),
    added(
        "a limit on the length of a body, 413",
        "test_rest_http.py::test_a_long_body_is_refused_before_it_is_read",
        "test_rest_http.py::test_a_long_body_of_unknown_length_is_refused",
        "test_rest_http.py::test_a_body_that_grows_too_long_is_refused",
    ),
    added(
        "a limit on the time for a request to arrive, 408",
        "test_rest_http.py::test_a_slow_body_is_refused",
        "test_rest_http.py::test_a_client_is_left_that",
        "test_rest_http.py::test_slow_clients_keep_nobody_else_waiting",
    ),
)
