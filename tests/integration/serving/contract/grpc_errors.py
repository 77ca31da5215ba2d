"""Codes and texts of refused gRPC requests."""

from __future__ import annotations

from integration.serving.contract.row import differs, kept

TITLE = "gRPC: errors"

ROWS = (
    kept(
        "the model is not served",
        "test_request_errors.py::test_predict_refuses_when[the model is not served]",
        "test_request_errors.py::test_metadata_is_refused_when[the model is not served]",
        "test_multi_inference.py::test_what_cannot_be_answered_is_refused[no model]",
    ),
    kept(
        "the version is not loaded",
        "test_request_errors.py::test_predict_refuses_when[the version is not loaded]",
        (
            "test_request_errors.py::test_predict_refuses_when[the model of that version is "
            "not served]"
        ),
    ),
    kept(
        "`model_spec` is absent",
        "test_request_errors.py::test_predict_refuses_when[there is no model spec]",
        "test_request_errors.py::test_classify_refuses_when[there is no model spec]",
        "test_request_errors.py::test_metadata_is_refused_when[there is no spec]",
        "test_request_errors.py::test_status_is_refused_when[there is no spec]",
    ),
    kept(
        "the name is empty",
        "test_request_errors.py::test_predict_refuses_when[the model spec has no name]",
    ),
    kept(
        "the label is unknown",
        "test_request_errors.py::test_predict_refuses_when[the label is unknown]",
    ),
    kept(
        "Predict: no such signature, FAILED_PRECONDITION",
        "test_request_errors.py::test_predict_refuses_when[there is no such signature]",
    ),
    kept(
        "Classify and Regress: no such signature",
        "test_request_errors.py::test_classify_refuses_when[there is no such signature]",
        "test_request_errors.py::test_regress_refuses_when[there is no such signature]",
    ),
    kept(
        "MultiInference: no such signature",
        "test_multi_inference.py::test_what_cannot_be_answered_is_refused[no signature]",
    ),
    kept(
        "the number of inputs differs",
        "test_request_errors.py::test_predict_refuses_when[there are too many inputs]",
        "test_request_errors.py::test_predict_refuses_when[there is no input]",
    ),
    kept(
        "an input has another name",
        "test_request_errors.py::test_predict_refuses_when[the input has another name]",
    ),
    kept(
        "an unknown name beside defaults",
        "test_request_errors.py::test_predict_names_the_inputs_it_used_when_a_default_hides_a_wrong_name",
    ),
    kept(
        "a tensor that cannot be decoded",
        (
            "test_request_errors.py::test_predict_refuses_when[the tensor's content has "
            "another size]"
        ),
        "test_request_errors.py::test_predict_refuses_when[the tensor has no data type]",
        "test_request_errors.py::test_predict_refuses_when[the tensor has a negative size]",
        "test_tensors.py::test_what_is_no_tensor_is_refused_and_the_server_stays",
    ),
    kept(
        "another data type",
        "test_request_errors.py::test_predict_refuses_when[the tensor has another data type]",
    ),
    kept(
        "declared shapes are not checked; an op that refuses is quoted, with the declared shape",
        "test_predict.py::test_declared_shapes_are_not_checked",
        "test_request_errors.py::test_an_op_that_refuses_shapes_is_quoted_with_its_node",
        "test_request_errors.py::test_an_op_that_refuses_a_shape_that_is_not_declared_is_explained",
    ),
    kept(
        "`output_filter` names no output",
        "test_request_errors.py::test_predict_refuses_when[the output filter names no output]",
    ),
    kept(
        "`output_filter` names an output twice",
        (
            "test_request_errors.py::test_predict_refuses_when[the output filter names an "
            "output twice]"
        ),
    ),
    kept(
        "the check of method names",
        "test_grpc_flags.py::test_the_check_refuses_signatures_of_another_kind",
    ),
    kept(
        "no examples",
        "test_request_errors.py::test_classify_refuses_when[there is no example]",
    ),
    kept(
        "Classify on a signature for something else",
        "test_request_errors.py::test_classify_refuses_when[the signature is one for predict]",
        "test_request_errors.py::test_classify_refuses_when[the signature is one for regress]",
    ),
    kept(
        "Classify: number of inputs and outputs",
        ("test_example_signatures.py::test_classify_refuses_a_signature_when[it has two inputs]"),
        "test_example_signatures.py::test_classify_refuses_a_signature_when[it has 3 outputs]",
    ),
    kept(
        "Regress on a signature for something else",
        "test_request_errors.py::test_regress_refuses_when[the signature is one for predict]",
        "test_request_errors.py::test_regress_refuses_when[the signature is one for classify]",
    ),
    kept(
        "Regress: number of inputs and outputs",
        "test_example_signatures.py::test_regress_refuses_a_signature_when[it has two inputs]",
        "test_example_signatures.py::test_regress_refuses_a_signature_when[it has 3 outputs]",
    ),
    kept(
        "Classify: rank of what comes out",
        ("test_example_signatures.py::test_classify_refuses_a_signature_when[scores are a scalar]"),
    ),
    kept(
        "Classify: type of what comes out",
        ("test_example_signatures.py::test_classify_refuses_a_signature_when[labels are numbers]"),
    ),
    kept(
        "Classify: another number of rows comes out",
        (
            "test_example_signatures.py::test_classify_refuses_a_signature_when[there are other "
            "rows of scores]"
        ),
        (
            "test_example_signatures.py::test_classify_refuses_a_signature_when[there are other "
            "rows of labels]"
        ),
    ),
    kept(
        "Regress: rank of what comes out",
        (
            "test_example_signatures.py::test_regress_refuses_a_signature_when[the value is "
            "a scalar]"
        ),
    ),
    kept(
        "Regress: another number of rows comes out",
        ("test_example_signatures.py::test_regress_refuses_a_signature_when[there are other rows]"),
    ),
    kept(
        "an Example lacks a feature",
        "test_request_errors.py::test_classify_refuses_when[an example lacks a feature]",
    ),
    kept(
        "a feature of another kind",
        "test_rest_errors.py::test_classify_refuses_when[an integer stands for a float]",
    ),
    kept(
        "MultiInference: an empty model name, several models",
        "test_multi_inference.py::test_all_tasks_have_one_model",
    ),
    kept(
        "MultiInference: a signature twice, no tasks",
        "test_multi_inference.py::test_what_cannot_be_answered_is_refused[twice]",
        "test_multi_inference.py::test_what_cannot_be_answered_is_refused[no tasks]",
    ),
    kept(
        "MultiInference: another method, UNIMPLEMENTED",
        "test_multi_inference.py::test_what_cannot_be_answered_is_refused[no method]",
    ),
    kept(
        "`metadata_field` is empty or unknown",
        "test_request_errors.py::test_metadata_is_refused_when[no field is asked for]",
        "test_request_errors.py::test_metadata_is_refused_when[the field is unknown]",
    ),
    kept(
        "status of an unknown model or version",
        "test_request_errors.py::test_status_is_refused_when[the model was never seen]",
        "test_request_errors.py::test_status_is_refused_when[the version was never seen]",
    ),
    kept(
        "the deadline is over",
        "test_predict.py::test_the_clients_deadline_ends_the_run",
        "test_rest_errors.py::test_a_run_that_takes_too_long_is_ended",
    ),
    kept(
        "reload: not a list of models",
        "test_reload.py::test_what_is_refused_changes_nothing[nothing]",
        "test_reload.py::test_what_is_refused_changes_nothing[a custom configuration]",
    ),
    kept(
        "reload: a model twice, a relative path, platforms",
        "test_reload.py::test_what_is_refused_changes_nothing[a name twice]",
        "test_reload.py::test_what_is_refused_changes_nothing[a relative path]",
        "test_reload.py::test_what_is_refused_changes_nothing[a platform that changes]",
        "test_reload.py::test_what_is_refused_changes_nothing[another platform]",
        "test_reload.py::test_what_is_refused_changes_nothing[no platform]",
    ),
    differs(
        "reload: a refused platform is remembered for the next reload",
        "a refused reload changes nothing, not even what the next one is compared with",
        "test_reload.py::test_what_is_refused_changes_nothing[another platform]",
    ),
    kept(
        "reload: a label of a version that does not serve",
        "test_labels.py::test_a_label_of_a_version_that_does_not_serve_is_refused_with_the_whole_configuration",
    ),
    kept(
        "reload or start: a model failed to load, UNKNOWN",
        "test_reload.py::test_a_new_model_that_cannot_be_loaded_is_the_answer",
        "test_several_models.py::test_every_model_that_fails_is_named",
    ),
    differs(
        "a request for a label before labels are set, UNAVAILABLE",
        "cannot happen: ports open after the first configuration is applied, labels included",
        "test_labels.py::test_with_the_flag_a_new_label_may_point_anywhere_from_the_start",
    ),
)
