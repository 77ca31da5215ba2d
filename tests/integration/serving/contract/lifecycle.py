"""When versions are loaded and unloaded."""

from __future__ import annotations

from integration.serving.contract.row import added, differs, kept

TITLE = "Versions"

ROWS = (
    kept(
        "the highest new version is loaded first",
        "lifecycle/test_availability.py::test_the_highest_new_aspired_version_is_loaded_first",
        "lifecycle/test_lifecycle.py::test_versions_load_one_after_the_other_the_highest_first",
    ),
    kept(
        "a version is unloaded only when another serves, or none should serve",
        "lifecycle/test_availability.py::test_a_version_is_unloaded_when",
        "lifecycle/test_lifecycle.py::test_the_newest_version_is_loaded_before_the_old_one_is_closed",
    ),
    kept(
        "no request fails while versions or models change",
        "test_lifecycle.py::test_a_new_version_takes_over_under_load_without_a_failed_request",
        "test_reload.py::test_nothing_is_lost_while_models_are_exchanged",
    ),
    kept(
        "unloading waits for running requests",
        "test_lifecycle.py::test_a_running_request_keeps_its_version",
        "lifecycle/test_lifecycle.py::test_a_request_keeps_its_version_open",
    ),
    kept(
        "a failed load is tried again, then ends with its error",
        "test_lifecycle.py::test_a_version_that_cannot_be_loaded_leaves_the_older_one_serving",
        "lifecycle/test_lifecycle.py::test_a_failed_load_is_retried_and_then_given_up",
    ),
    kept(
        "an older version serves meanwhile",
        "test_lifecycle.py::test_a_version_that_cannot_be_loaded_leaves_the_older_one_serving",
        "lifecycle/test_lifecycle.py::test_a_failed_new_version_leaves_every_aspired_older_one_serving",
    ),
    kept(
        "a failed version is tried again after it disappeared and came back",
        "lifecycle/test_lifecycle.py::test_a_version_that_failed_is_tried_again_after_it_was_away",
    ),
    kept(
        "a version that disappeared may come back",
        "test_lifecycle.py::test_the_last_version_gone_means_not_found",
        "lifecycle/test_lifecycle.py::test_a_version_that_went_away_serves_again_when_it_is_back",
    ),
    differs(
        "a slow load delays other models",
        "it delays neither other models nor the polling of the disk",
        "test_several_models.py::test_a_slow_load_of_one_model_holds_up_no_other",
        "lifecycle/test_lifecycle.py::test_a_slow_load_does_not_hold_up_the_polling",
    ),
    differs(
        "memory is not limited",
        "a version that needs more than the machine or the cgroup has left is refused "
        "(RESOURCE_EXHAUSTED)",
        "test_lethal_versions.py::test_a_version_that_needs_more_memory_than_is_left_is_refused_with_the_numbers",
        "lifecycle/test_load_memory.py::test_a_version_needs_its_variables_its_graph_and_its_cache",
        "lifecycle/test_load_memory.py::test_a_cache_is_no_larger_than_twice_what_is_stored",
        "lifecycle/test_load_memory.py::test_what_is_more_than_is_left_is_refused_with_the_numbers",
        "test_several_models.py::test_the_latest_versions_move_on",
    ),
    differs(
        "SIGTERM ends at once",
        "running requests end first, for up to `--drain_seconds`",
        "test_process.py::test_a_signal_ends_it_with_exit_code_0",
        "test_process.py::test_running_requests_end_before_the_process_does",
        "test_process.py::test_requests_over_rest_and_grpc_have_one_time_to_end",
        "test_process.py::test_a_signal_ends_the_wait_for_a_version",
        "data_plane/test_stop_signal.py::test_a_signal_at_any_moment_of_the_wait_ends_it",
        "data_plane/test_stop_signal.py"
        "::test_a_signal_that_interrupts_no_call_of_the_main_thread_ends_the_wait",
        "data_plane/test_stop_signal.py::test_it_waits_for_both_signals_and_calls_with_the_number",
    ),
    kept(
        "ports open when all models of the start serve",
        "test_several_models.py::test_ports_open_when_every_model_serves",
        "test_several_models.py::test_one_version_of_each_model_opens_the_ports",
    ),
    kept(
        "a model that fails at the start ends the server",
        "test_process.py::test_a_first_version_that_cannot_be_loaded_ends_it",
        "test_several_models.py::test_every_model_that_fails_is_named",
    ),
    added(
        "the executable that answers is restarted when it ends",
        "test_data_plane.py::test_it_is_started_again_with_what_it_had",
        "test_data_plane.py::test_a_version_that_cannot_be_loaded_again_leaves_the_others_serving",
        "test_data_plane.py::test_a_version_that_could_not_be_loaded_again_serves_when_it_can",
        "test_data_plane.py::test_crashes_while_versions_load_lose_none_of_them",
        "test_grpc_flags.py::test_everything_is_there_again_after_the_executable_ended",
    ),
    added(
        "temporary files of a server that was killed are removed by the next start",
        "test_process.py::test_the_next_start_removes_what_a_killed_supervisor_left",
        "data_plane/test_private_folder.py::test_what_a_killed_supervisor_left_is_removed",
        "data_plane/test_private_folder.py::test_what_is_used_or_another_thing_stays",
        "data_plane/test_private_folder.py::test_a_folder_in_use_is_held",
    ),
    added(
        "a version whose load ends the executable is given up after `--max_num_load_retries` more "
        "attempts; the others serve",
        "test_lethal_versions.py::test_a_version_whose_load_ends_the_executable_is_given_up",
        "test_lethal_versions.py::test_versions_that_load_beside_a_lethal_one_are_loaded",
        "test_lethal_versions.py::test_a_version_that_serves_and_cannot_be_loaded_again_does_not_keep_the_others",
        "data_plane/test_load_turns.py::test_a_load_that_was_alone_is_the_cause",
        "data_plane/test_load_turns.py::test_of_several_none_is_the_cause_until_it_is_alone",
        "data_plane/test_load_turns.py::test_a_version_that_was_loaded_is_no_suspect",
    ),
    added(
        "all but reloads and metrics continues while the control process restarts",
        "test_rest_goes_on.py"
        "::test_everything_is_answered_while_the_control_process_is_stopped_and_started_again",
        "test_data_plane.py::test_predictions_go_on_while_the_control_process_is_started_again",
        "test_data_plane.py::test_versions_change_while_there_is_no_control_process",
        "test_data_plane.py::test_what_was_configured_meanwhile_outlives_the_control_process",
        "test_data_plane.py::test_nothing_outlives_the_process_that_started_all",
    ),
    added(
        "a version whose store does not answer is tried until it does",
        "test_redis_rows.py::test_a_version_loads_as_soon_as_its_store_answers",
        "test_refused_cuts.py::test_a_version_loads_as_soon_as_a_damaged_cut_is_whole_again",
        "lifecycle/test_lifecycle.py::test_a_version_is_tried_until_its_store_answers",
    ),
    added(
        "rows and weights of a version change while it serves, by incremental exports",
        "test_training_goes_on.py::test_an_incremental_export_is_seen_whole_and_to_the_bit",
        "test_training_goes_on.py::test_an_incremental_export_that_is_killed_half_way_changes_nothing_and_runs_again",
        "test_cuts.py::test_cuts_are_seen_whole_and_in_order",
        "test_cuts.py::test_a_cut_is_looked_for_as_soon_as_it_is_announced",
        "test_cuts.py::test_lag_and_size_of_cuts_are_counted_and_leases_name_the_page",
        "test_cuts.py::test_a_server_that_starts_later_begins_with_the_newest_cut",
        "test_cuts.py::test_rows_of_folded_cuts_are_not_hidden_by_an_earlier_cut_that_seems_unfolded",
        "test_cuts_after_kills.py::test_an_executable_that_is_killed_begins_with_what_was_shown",
        "test_cuts_after_kills.py::test_an_executable_that_is_killed_in_the_midst_of_cuts_shows_none_of_them_in_part",
        "test_cuts_after_kills.py::test_a_control_process_that_is_killed_fails_no_request_and_forgets_no_cut",
        "test_cuts_after_kills.py::test_a_second_session_that_a_dead_control_process_asked_for_is_used",
        "test_cuts.py::test_a_damaged_cut_is_reported_once_and_the_one_before_stays",
        "test_refused_cuts.py::test_a_refused_cut_is_seen_in_metrics_and_health_until_one_is_taken",
        "test_finite_cuts.py::test_a_cut_that_is_not_finite_is_not_taken",
        "test_finite_cuts.py::test_a_good_cut_before_the_refused_one_is_taken",
        "test_finite_cuts.py::test_a_forced_cut_is_taken",
        "test_cuts.py::test_a_cut_that_is_withdrawn_stays_until_it_comes_again",
        "test_cuts.py::test_a_store_with_a_full_disk_is_reported_once",
        "test_cuts.py::test_while_the_store_is_away_answers_go_on_and_say_so",
        "test_cuts.py::test_a_server_that_slept_through_cuts_that_are_folded_and_gone_takes_the_newest",
        "test_cuts.py::test_a_cut_of_weights_alone_is_taken",
        "test_many_cuts.py::test_layers_are_merged_under_load_and_after_a_kill_and_go_when_they_are_folded",
        "test_held_cuts.py::test_a_reader_that_holds_up_cuts_shows_in_metrics_until_it_is_overruled",
        "test_held_cuts.py::test_cuts_do_not_wait_for_a_control_process_that_was_killed",
        "test_held_cuts.py::test_a_server_that_hangs_is_overruled_and_mixes_nothing",
        "test_cuts.py::test_a_cut_with_the_weights_of_an_earlier_one_is_taken",
        "test_cuts.py::test_a_version_that_is_unloaded_leaves_nothing_of_its_cuts",
        "test_cuts.py::test_a_server_whose_store_hangs_ends_in_time",
        "test_cuts.py::test_a_version_that_cannot_be_loaded_again_gives_its_lease_back",
    ),
    added(
        "`platform rollback` takes servers back to an earlier version or incremental export",
        "test_rollback.py::test_servers_swap_versions_back_and_forth_under_load",
        "test_rollback.py::test_servers_that_are_late_are_named_and_follow",
        "test_rollback.py::test_what_cannot_be_gone_back_to_changes_nothing",
        "test_rollback.py::test_versions_without_hotrows_rows_are_swapped_as_well",
        "test_rollback.py::test_cuts_are_undone_under_load",
        "test_rollback.py::test_a_cut_that_servers_refuse_is_undone",
        "test_rollback.py::test_a_hundred_rollbacks_fail_no_request_and_mix_none",
    ),
)
