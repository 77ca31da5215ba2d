"""The fault matrix of online learning: for each fault its tests, its defence and mutations of it.

Rows have the numbers of the list from which online learning was planned. A mutation changes one
place of the product so that the defence is gone; the row's tests must then fail
(`python -m faults.matrix --mutate`).
"""

from __future__ import annotations

from dataclasses import dataclass

from faults.mutation import Mutation


@dataclass(frozen=True)
class FaultRow:
    """A fault and what shows that it does no harm.

    Attributes:
        number: of the row.
        fault: what happens.
        tests: pytest ids below `tests`.
        defence: file and function, below the package or the repository.
        mutations: each switches the defence off.
        together: only all of them do, because one defence stands behind another.
        mutated_tests: what runs with mutations, if not all tests.
    """

    number: int
    fault: str
    tests: tuple[str, ...]
    defence: str
    mutations: tuple[Mutation, ...]
    mutated_tests: tuple[str, ...] = ()
    together: bool = False


_ONLINE, _SERVING, _STORE = "integration/online/", "integration/serving/", "integration/store/"
_PUBLISHING = "trainer/online/publishing/"
_KILLED_ONCE = (
    f"{_ONLINE}test_publish_kills.py"
    "::test_one_that_is_killed_leaves_nothing_that_the_resumed_one_does_not_have"
)
_NEWER_ONLY = Mutation(
    "store/redis/functions.lua",
    "if high > old_high or (high == old_high and low > old_low) then\n"
    "          redis.call('SETRANGE'",
    "if true then\n          redis.call('SETRANGE'",
)

ROWS = (
    FaultRow(
        1,
        "the trainer is killed at any step of a publish",
        (_KILLED_ONCE,),
        f"{_PUBLISHING}publisher.py Publisher._mark, journal.py",
        (
            Mutation(
                f"{_PUBLISHING}publisher.py",
                'self._journal.keys_since(begin["journal_after"])',
                "self._journal.keys_since(1 << 63)",
            ),
        ),
        (f"{_KILLED_ONCE}[one]",),
    ),
    FaultRow(
        2,
        "the trainer is killed between an update and the mark of the changed row",
        (
            f"{_ONLINE}test_publish_kills.py"
            "::test_rows_that_only_a_checkpoint_has_are_published_after_a_kill",
            "unit/ops/test_publishing_marks.py::test_a_step_marks_what_changed_after_it",
        ),
        f"{_PUBLISHING}publisher.py Publisher._mark: clocks of rows replace marks",
        (
            Mutation(
                f"{_PUBLISHING}publisher.py",
                'table.begin_publishing(begin["since"][name])',
                "table.begin_publishing(table.step)",
            ),
        ),
    ),
    FaultRow(
        3,
        "a restart from an older checkpoint: servers have newer rows than the trainer",
        (
            f"{_ONLINE}test_publishing.py"
            "::test_a_trainer_that_is_killed_publishes_again_what_servers_have_newer",
        ),
        f"{_PUBLISHING}plan.py begin_anew",
        (
            Mutation(
                f"{_PUBLISHING}plan.py",
                "return Begin(state.clocks, state.version, state)",
                "return Begin(state.clocks, 1 << 63, state)",
            ),
        ),
    ),
    FaultRow(
        4,
        "two trainers: one was stopped while the other took over",
        (
            f"{_ONLINE}test_fencing.py"
            "::test_a_trainer_that_was_stopped_while_another_took_over_ends_with_an_error",
            f"{_STORE}test_cuts.py::test_an_exporter_with_an_older_epoch_commits_nothing",
        ),
        f"{_PUBLISHING}store_writer.py StoreWriter.open, worker.py CutWorker._run",
        (
            Mutation(
                f"{_PUBLISHING}worker.py",
                "except FencedError as err:\n                self._stop(err)",
                "except FencedError as err:\n                self._fail(err)",
            ),
        ),
    ),
    FaultRow(
        5,
        "rows arrive twice",
        (f"{_STORE}test_redis_put.py::test_a_version_goes_only_over_an_older_one",),
        "store/redis/functions.lua put: versions are compared",
        (_NEWER_ONLY,),
    ),
    FaultRow(
        6,
        "rows arrive in another order",
        (
            f"{_STORE}test_rows_contract.py"
            "::test_the_newest_of_many_writers_wins_whatever_the_order",
            f"{_STORE}test_redis_put.py::test_puts_in_any_order_leave_the_newest_of_each_key",
        ),
        "store/redis/functions.lua put: versions are compared",
        (_NEWER_ONLY,),
    ),
    FaultRow(
        7,
        "a cut is missed, or an event is gone unread",
        (
            "unit/serving/updates/test_wanted_cuts.py"
            "::test_cuts_that_were_forgotten_before_they_were_shown_are_missed",
            f"{_SERVING}test_cuts.py"
            "::test_a_server_that_slept_through_cuts_that_are_folded_and_gone_takes_the_newest",
            f"{_ONLINE}test_redis_gaps.py::test_entries_that_were_removed_unread_are_noticed",
        ),
        "serving/updates/wanted_cuts.py wanted_cuts",
        (
            Mutation(
                "serving/updates/wanted_cuts.py",
                "missed = missed or cut.previous > before",
                "missed = False",
            ),
        ),
        (
            "unit/serving/updates/test_wanted_cuts.py"
            "::test_cuts_that_were_forgotten_before_they_were_shown_are_missed",
        ),
    ),
    FaultRow(
        8,
        "a server is killed while it takes a cut",
        (
            f"{_SERVING}test_cuts_after_kills.py",
            f"{_SERVING}test_cuts.py::test_a_server_that_starts_later_begins_with_the_newest_cut",
        ),
        "serving/updates/wanted_cuts.py wanted_cuts: who begins lays what is not folded",
        (
            Mutation(
                "serving/updates/wanted_cuts.py",
                "return cut in new or not cut.folded or (low is not None and cut.version > low)",
                "return cut in new",
            ),
        ),
    ),
    FaultRow(
        9,
        "a server starts with a cold cache",
        (f"{_SERVING}test_cache_warm_up.py",),
        "serving/lifecycle/warm_up.py, serving/native",
        (
            Mutation(
                "ops/native/core/serving/tables.cc",
                "if (cache_ != nullptr) warm_up();",
                "if (cache_ == nullptr) warm_up();",
            ),
        ),
    ),
    FaultRow(
        10,
        "a primary of the Redis Cluster dies, and acknowledged writes are lost",
        (
            f"{_ONLINE}test_store_faults.py::test_a_cluster_whose_primary_dies",
            f"{_ONLINE}test_killed_cuts.py",
            f"{_STORE}test_lost_changes.py"
            "::test_rows_that_a_failover_lost_after_folding_are_folded_again",
            f"{_STORE}test_folding_in_a_failover.py",
            f"{_SERVING}test_rewinds.py",
        ),
        "store/cut_folding.py: a shard whose watermark went back is folded again",
        (
            Mutation(
                "store/cut_folding.py",
                "behind = set(np.flatnonzero(marks < np.uint64(last.version)).tolist())",
                "behind = set() if is_proven else set(range(generation.shards))",
            ),
            Mutation(
                f"{_PUBLISHING}plan.py",
                "return Begin(clocks, shown.version, published)",
                "return Begin(clocks, 1 << 63, published)",
            ),
        ),
        (
            f"{_STORE}test_lost_changes.py"
            "::test_rows_that_a_failover_lost_after_folding_are_folded_again",
            f"{_ONLINE}test_killed_cuts.py::test_they_are_taken_back_if_the_store_has_lost_them",
        ),
    ),
    FaultRow(
        11,
        "the store does not answer, or late",
        (
            f"{_ONLINE}test_store_faults.py::test_a_store_that_hangs",
            f"{_ONLINE}test_store_faults.py::test_a_store_that_answers_half_a_second_late",
            f"{_SERVING}test_read_budget.py",
            f"{_SERVING}test_redis_faults.py",
        ),
        f"{_PUBLISHING}online_store.py: a thread writes, and waits 5 s at most",
        (
            Mutation(
                f"{_PUBLISHING}online_store.py",
                "_PATIENCE_SECONDS = 5.0",
                "_PATIENCE_SECONDS = 3600.0",
            ),
        ),
        (f"{_ONLINE}test_store_faults.py::test_a_store_that_hangs",),
    ),
    FaultRow(
        12,
        "the store loses everything",
        (
            f"{_ONLINE}test_publishing.py"
            "::test_a_store_that_loses_everything_gets_a_new_base_by_itself",
            f"{_SERVING}test_redis_rows.py"
            "::test_a_store_that_lost_its_rows_is_never_taken_for_one_without_them",
        ),
        f"{_PUBLISHING}store_writer.py StoreWriter.find",
        (
            Mutation(
                f"{_PUBLISHING}store_writer.py",
                "except (NotFoundError, FailedPreconditionError):\n            return None",
                "except (NotFoundError, FailedPreconditionError):\n            raise",
            ),
        ),
        (
            f"{_ONLINE}test_publishing.py"
            "::test_a_store_that_loses_everything_gets_a_new_base_by_itself",
        ),
    ),
    FaultRow(
        13,
        "the memory of the store is full, or it may drop rows",
        (
            f"{_ONLINE}test_store_faults.py::test_a_store_whose_memory_is_full",
            f"{_ONLINE}test_store_faults.py::test_a_store_that_may_drop_rows_is_refused",
            f"{_STORE}test_redis_access.py::test_a_server_that_may_drop_rows_is_refused",
            f"{_STORE}test_redis_access.py::test_a_full_store_refuses_rows_and_can_still_be_cleared",
        ),
        "store/redis/row_store.py RedisStore.check_safe_for_rows",
        (
            Mutation(
                "store/redis/row_store.py",
                'and policy != "noeviction"',
                'and policy == "drops everything"',
            ),
        ),
        (f"{_STORE}test_redis_access.py::test_a_server_that_may_drop_rows_is_refused",),
    ),
    FaultRow(
        14,
        "slots of the cluster move while rows are written and read",
        (
            f"{_STORE}test_redis_failover.py"
            "::test_a_slot_that_stays_between_two_nodes_is_written_and_read",
            f"{_STORE}test_redis_failover.py"
            "::test_writes_while_slots_move_back_and_forth_lose_nothing",
            f"{_SERVING}test_redis_faults.py"
            "::test_no_prediction_fails_while_slots_of_a_cluster_move",
        ),
        "store/redis/client.py: MOVED and ASK are followed",
        (
            Mutation(
                "store/redis/client.py",
                'if asked:\n                        ask(connection, "ASKING")',
                'if False:\n                        ask(connection, "ASKING")',
            ),
        ),
        (
            f"{_STORE}test_redis_failover.py"
            "::test_a_slot_that_stays_between_two_nodes_is_written_and_read",
        ),
    ),
    FaultRow(
        15,
        "the network between two of the parts is cut",
        (
            "faults/test_schedules.py::test_faults_are_announced_or_not_seen_and_all_is_well_again",
            f"{_SERVING}test_partition.py",
            f"{_ONLINE}test_redis_streams.py::test_it_goes_on_when_redis_is_back",
            f"{_ONLINE}test_kafka.py::test_an_outage_is_reported",
        ),
        "store/redis, serving/updates/cut_follower.py, trainer/online/sources",
        (
            Mutation(
                "trainer/online/sources/redis_streams.py",
                "except UnavailableError as err:\n                self._note_silence(err)",
                "except ZeroDivisionError as err:\n                self._note_silence(err)",
            ),
        ),
        (f"{_ONLINE}test_redis_streams.py::test_it_goes_on_when_redis_is_back",),
    ),
    FaultRow(
        16,
        "the source of events does not answer at the start",
        (
            f"{_ONLINE}test_redis_streams.py::test_a_server_that_does_not_answer_is_named",
            f"{_ONLINE}test_kafka.py::test_a_topic_that_is_not_there_is_named",
        ),
        "trainer/online/sources/redis_streams.py, kafka.py: they connect when they are made",
        (
            Mutation(
                "store/redis/client.py",
                "raise refusal(url, err) from err",
                "raise",
            ),
            Mutation(
                "trainer/online/sources/kafka.py",
                "if error.code() in (codes.UNKNOWN_TOPIC_OR_PART, codes._UNKNOWN_TOPIC):",
                "if error.code() in ():",
            ),
        ),
    ),
    FaultRow(
        17,
        "rows are not finite",
        (
            f"{_ONLINE}test_spoilt_rows.py::test_a_spoilt_cut_is_not_published[one nan]",
            f"{_ONLINE}test_spoilt_rows.py::test_a_spoilt_cut_is_not_published[all infinite]",
            f"{_SERVING}test_finite_cuts.py",
        ),
        f"{_PUBLISHING}part.py stage_part, taken_cut.py TakenCut.checked_norms; "
        "serving/updates/finite_cuts.py",
        (
            Mutation(
                f"{_PUBLISHING}part.py", 'problems[0] if problems else ""', '"" if problems else ""'
            ),
        ),
        (f"{_ONLINE}test_spoilt_rows.py::test_a_spoilt_cut_is_not_published[one nan]",),
    ),
    FaultRow(
        18,
        "rows are finite and far too large",
        (
            f"{_ONLINE}test_spoilt_rows.py::test_a_spoilt_cut_is_not_published[one huge]",
            f"{_ONLINE}test_spoilt_rows.py::test_a_spoilt_cut_is_not_published[all huge]",
            "unit/test_norms.py::test_a_norm_that_grows_more_is_refused_by_name",
        ),
        "norms.py check_growth",
        (
            Mutation(
                "norms.py",
                "            if most is not None and ratio > most:\n",
                "            if False:\n",
            ),
        ),
        (f"{_ONLINE}test_spoilt_rows.py::test_a_spoilt_cut_is_not_published[one huge]",),
    ),
    FaultRow(
        19,
        "rows of another dimension, type or table",
        (
            f"{_ONLINE}test_publishing.py"
            "::test_a_trainer_with_other_tables_publishes_a_version_of_its_own",
            f"{_STORE}test_cuts.py::test_a_block_that_was_lost_or_changed_is_noticed",
        ),
        f"{_PUBLISHING}store_writer.py StoreWriter.find, plan.py begin_anew",
        (
            Mutation(
                f"{_PUBLISHING}store_writer.py",
                "manifest.schema_hash == schema_hash == generation.schema_hash\n            and ",
                "",
            ),
            Mutation(
                f"{_PUBLISHING}plan.py",
                "    if lineage.descends_from(shown.lineage, shown.step):\n",
                "    if True:\n",
            ),
        ),
        (
            f"{_ONLINE}test_publishing.py"
            "::test_a_trainer_with_other_tables_publishes_a_version_of_its_own",
        ),
        together=True,
    ),
    FaultRow(
        20,
        "a bit of a block flips, or its end is missing",
        (
            f"{_STORE}test_cuts.py::test_a_block_that_was_lost_or_changed_is_noticed",
            f"{_SERVING}test_cuts.py::test_a_damaged_cut_is_reported_once_and_the_one_before_stays",
        ),
        "store/cut_blocks.py: checksums",
        (
            Mutation(
                "store/cut_blocks.py",
                "if magic != _MAGIC or _checksum(table, block[_START.size :]) != checksum:",
                "if magic != _MAGIC:",
            ),
        ),
    ),
    FaultRow(
        21,
        "the disk is full: journal, checkpoint, export",
        (
            f"{_ONLINE}test_full_disk.py",
            "integration/test_full_disk.py",
            f"{_STORE}test_redis_full_disk.py",
        ),
        f"{_PUBLISHING}part.py stage_part: nothing is staged before the journal has its keys",
        (
            Mutation(
                f"{_PUBLISHING}part.py",
                "    journal.write(entry, read.keys)\n",
                "    try:\n        journal.write(entry, read.keys)\n"
                "    except OSError:\n        pass\n",
            ),
        ),
        (f"{_ONLINE}test_full_disk.py::test_what_cannot_be_noted_is_published_when_there_is_room",),
    ),
    FaultRow(
        22,
        "a file of a checkpoint is damaged",
        (
            "unit/trainer/checkpoint/test_directory.py::test_damage_gives_way_to_the_checkpoint"
            "_before_or_is_data_loss_and_never_loads_a_part",
        ),
        "trainer/checkpoint/directory.py Checkpoints._first_good",
        (
            Mutation(
                "trainer/checkpoint/directory.py",
                "except DataLossError as err:\n                self._damaged.add(step)",
                "except ZeroDivisionError as err:\n                self._damaged.add(step)",
            ),
        ),
    ),
    FaultRow(
        23,
        "a crash while a checkpoint is completed",
        (
            "unit/test_sealed_directory.py"
            "::test_a_directory_is_replaced_only_when_asked_and_only_in_the_end",
            "unit/test_sealed_directory.py::test_leftovers_of_a_crash_are_removed_and_nothing_else",
            "integration/test_resume.py"
            "::test_a_run_killed_at_random_moments_ends_as_if_nothing_had_happened",
        ),
        "sealed_directory.py sealing: a temporary name, and a rename at the end",
        (
            Mutation(
                "sealed_directory.py",
                'final.with_name(f"{_LEFTOVER_PREFIX}{final.name}-{os.getpid()}")',
                "final",
            ),
        ),
        (
            "unit/test_sealed_directory.py"
            "::test_a_directory_is_replaced_only_when_asked_and_only_in_the_end",
        ),
    ),
    FaultRow(
        24,
        "rows change while a cut or a checkpoint is read",
        (
            "unit/trainer/checkpoint/test_writer.py::test_what_is_written_while_training_goes_on"
            "_is_the_state_of_the_snapshots_step",
            "unit/ops/test_publishing_marks.py"
            "::test_a_snapshot_has_what_changed_since_the_last_kept_one",
            "unit/ops/test_publishing_marks.py"
            "::test_checkpoints_and_publishing_have_their_own_marks_at_the_same_time",
        ),
        "native/table: copies of rows before they change",
        (
            Mutation(
                "ops/native/core/table/partition_snapshot.cc",
                "  if (wanted(place)) {\n    copy(place);",
                "  if (wanted(place) && place > places_) {\n    copy(place);",
            ),
        ),
    ),
    FaultRow(
        25,
        "a resumed run does not end as an uninterrupted one",
        (
            f"{_ONLINE}test_kills.py"
            "::test_each_event_counts_once_however_often_the_trainer_is_killed[3-7]",
            "integration/test_train_command.py"
            "::test_resuming_equals_a_run_that_was_never_interrupted",
        ),
        "trainer/online/run.py OnlineRun._open_stream: positions are in checkpoints",
        (
            Mutation(
                "trainer/online/run.py",
                'position: Position = self._online.get("source", {})',
                "position: Position = {}",
            ),
        ),
        (
            f"{_ONLINE}test_kills.py"
            "::test_each_event_counts_once_however_often_the_trainer_is_killed[3-7]",
        ),
    ),
    FaultRow(
        26,
        "a version or a cut is taken back under load",
        (
            f"{_ONLINE}test_control.py"
            "::test_a_rollback_closes_the_gate_and_a_resume_publishes_all_again",
            f"{_SERVING}test_rollback.py",
        ),
        f"{_PUBLISHING}worker.py CutWorker.roll_back: the gate is closed",
        (
            Mutation(
                f"{_PUBLISHING}worker.py",
                'self.gate.close(f"rolled back to {to:016x} by an operator")',
                "pass",
            ),
        ),
        (
            f"{_ONLINE}test_control.py"
            "::test_a_rollback_closes_the_gate_and_a_resume_publishes_all_again",
        ),
    ),
    FaultRow(
        27,
        "dense weights of one step with rows of another",
        (f"{_SERVING}test_cuts.py::test_cuts_are_seen_whole_and_in_order",),
        "serving/updates/cut_files.py CutFiles.write: a state has rows and weights of one cut",
        (
            Mutation(
                "serving/updates/cut_files.py",
                "if wanted.newest is not None and wanted.newest.dense_places:",
                "if False:",
            ),
        ),
    ),
    FaultRow(
        28,
        "a server hangs",
        (
            f"{_ONLINE}test_stopped_server.py"
            "::test_others_follow_cuts_are_folded_and_it_catches_up",
            f"{_STORE}test_holding.py",
            f"{_SERVING}test_held_cuts.py",
        ),
        "store/holding.py Readers.let_fold, online.max_hold_seconds",
        (
            Mutation(
                f"{_PUBLISHING}publisher.py",
                "bounds=HoldBounds(online.max_hold_seconds, config.export.max_hold_bytes)",
                "bounds=HoldBounds(None, None)",
            ),
        ),
        (f"{_ONLINE}test_stopped_server.py::test_others_follow_cuts_are_folded_and_it_catches_up",),
    ),
    FaultRow(
        29,
        "all rows change while nothing can be published",
        (
            f"{_ONLINE}test_store_faults.py::test_a_store_that_hangs",
            "unit/ops/test_publishing_marks.py"
            "::test_one_that_takes_too_much_memory_is_lost_and_training_goes_on",
        ),
        f"{_PUBLISHING}worker.py CutWorker._give_up: rows stay marked, views are bounded",
        (
            Mutation(
                f"{_PUBLISHING}worker.py",
                "self._settled, self._phase = False, Phase.SETTLE",
                "self._settled, self._phase = True, Phase.SETTLE",
            ),
        ),
        (f"{_ONLINE}test_store_faults.py::test_a_store_that_hangs",),
    ),
    FaultRow(
        30,
        "the wall clock jumps by hours",
        (
            f"{_ONLINE}test_moved_clocks.py"
            "::test_cuts_go_on_over_jumps_of_an_hour_and_a_restart_in_the_past",
            f"{_STORE}test_rewinds.py"
            "::test_a_cut_goes_above_what_was_published_while_a_clock_was_ahead",
            "unit/serving/updates/test_taken_counts.py"
            "::test_times_of_other_clocks_are_never_negative",
        ),
        "store/cut_writing.py begin_cut: above all versions that are known",
        (
            Mutation(
                "store/cut_writing.py",
                "known = max(above, newest_anywhere(store, generation))",
                "known = 0",
            ),
        ),
        (
            f"{_STORE}test_rewinds.py"
            "::test_a_cut_goes_above_what_was_published_while_a_clock_was_ahead",
        ),
    ),
    FaultRow(
        31,
        "rows expire at the trainer",
        (
            f"{_ONLINE}test_expired_rows.py::test_rows_that_expired_are_gone_from_the_store",
            "integration/test_export_changes.py"
            "::test_the_store_holds_what_was_trained_on_bit_for_bit_with_expired_rows_gone",
        ),
        f"{_PUBLISHING}view.py CutView.changes: tombstones",
        (Mutation(f"{_PUBLISHING}view.py", "if len(removed):", "if False:"),),
        (f"{_ONLINE}test_expired_rows.py::test_rows_that_expired_are_gone_from_the_store",),
    ),
    FaultRow(
        32,
        "a key is asked for before its first publish",
        (
            f"{_ONLINE}test_serving.py"
            "::test_a_key_that_is_asked_for_before_its_first_publish_gets_its_row",
            f"{_SERVING}test_redis_rows.py"
            "::test_default_rows_are_reported_for_each_request_of_a_batch",
        ),
        "native/serving: a default row, and no memory of it beyond the next cut",
        (
            Mutation(
                "ops/native/core/serving/lookup.cc",
                "failed += missing.states[u] == ReadState::kFailed;",
                "failed += missing.states[u] != ReadState::kFound;",
            ),
        ),
        (
            f"{_ONLINE}test_serving.py"
            "::test_a_key_that_is_asked_for_before_its_first_publish_gets_its_row",
        ),
    ),
    FaultRow(
        33,
        "a client leaves while a cut is taken",
        (
            f"{_SERVING}test_leaving_clients.py::test_they_hold_up_no_cut_and_leave_nothing_open",
            f"{_SERVING}test_read_budget.py::test_the_deadline_of_a_request_ends_its_reads",
        ),
        "serving/native: the reads of a request end with it, and hold no lock",
        (
            Mutation(
                "ops/native/core/serving/lookup.cc",
                "lookup_.fetch(scratch, overlay_, deadline, report_);",
                "lookup_.fetch(scratch, overlay_, deadline + std::chrono::hours(1), report_);",
            ),
        ),
        (f"{_SERVING}test_read_budget.py::test_the_deadline_of_a_request_ends_its_reads",),
    ),
    FaultRow(
        34,
        "memory grows with the number of cuts",
        (
            f"{_SERVING}test_many_cuts.py",
            f"{_ONLINE}test_soak.py::test_memory_does_not_grow_with_cuts",
        ),
        "native/serving: layers are merged",
        (
            Mutation(
                "ops/native/core/serving/layers_to_merge.cc",
                "if (rows.size() <= kFewLayers) return {};",
                "if (rows.size() <= 1000 * kFewLayers) return {};",
            ),
        ),
        (f"{_SERVING}test_many_cuts.py",),
    ),
    FaultRow(
        35,
        "labels are flipped",
        (
            f"{_ONLINE}test_control.py"
            "::test_flipped_labels_close_the_gate_and_servers_keep_the_last_good_cut",
            "unit/trainer/online/publishing/test_gate.py",
        ),
        f"{_PUBLISHING}gate.py check_canary",
        (
            Mutation(
                f"{_PUBLISHING}gate.py",
                "if limits.canary_auc_drop is not None and drop > limits.canary_auc_drop:",
                "if False:",
            ),
        ),
        (
            f"{_ONLINE}test_control.py"
            "::test_flipped_labels_close_the_gate_and_servers_keep_the_last_good_cut",
        ),
    ),
)
