"""What all ranks do alike: errors, values, metrics of a step."""

from __future__ import annotations

import threading
from dataclasses import replace

import numpy as np
import pytest

from hotrow.errors import FailedPreconditionError, HotrowError, NotFoundError
from hotrow.ops.ranks import LONE, thread_ranks
from hotrow.trainer.agreement import agreed, gathered, of_first
from hotrow.trainer.data import DataError
from hotrow.trainer.step_report import StepReport, exchange


def on_ranks(count, work):
    """Returns what `work(rank)` returned or raised on each rank."""
    results = [None] * count

    def run(rank):
        try:
            results[rank.rank] = work(rank)
        except Exception as err:
            results[rank.rank] = err

    threads = [threading.Thread(target=run, args=(rank,)) for rank in thread_ranks(count, 30.0)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


def test_work_that_succeeds_everywhere_returns_its_own_result():
    assert on_ranks(3, lambda ranks: agreed(ranks, "x", lambda: ranks.rank)) == [0, 1, 2]
    assert agreed(LONE, "x", lambda: 7) == 7


def test_work_that_fails_on_one_rank_fails_on_all_with_its_name():
    def work(ranks):
        def fail():
            if ranks.rank == 1:
                raise NotFoundError("no such file")

        return agreed(ranks, "x", fail)

    for result in on_ranks(3, work):
        assert isinstance(result, NotFoundError)
        assert str(result) == "rank 1: no such file"
        assert result.on_all_ranks


def test_work_that_fails_alike_on_all_ranks_is_reported_without_a_name():
    def work(ranks):
        def fail():
            raise DataError("line 3")

        return agreed(ranks, "x", fail)

    for result in on_ranks(2, work):
        assert (str(result), result.exit_code) == ("line 3", 1)


def test_values_are_gathered_and_spread():
    assert (
        on_ranks(3, lambda ranks: gathered(ranks, "x", {"r": ranks.rank}))
        == [[{"r": 0}, {"r": 1}, {"r": 2}]] * 3
    )
    assert on_ranks(2, lambda ranks: of_first(ranks, "x", ranks.rank)) == [0, 0]


def report(ranks, **changes):
    start, stop = ranks.rank * 5 // ranks.size, (ranks.rank + 1) * 5 // ranks.size
    rows = np.arange(start, stop, dtype=np.float32)
    facts = {"rows": 5, "stop": None, "is_last": False, "has_two": True, "report": ranks.is_first,
             "checkpoint": ranks.rank == 1, "writing": ranks.rank}  # fmt: skip
    return StepReport(rows, -rows, **{**facts, **changes})


@pytest.mark.parametrize("count", [2, 3, 7])
def test_a_step_is_reported_in_the_order_of_the_global_batch(count):
    for done in on_ranks(count, lambda ranks: exchange(ranks, report(ranks), 4)):
        assert done.labels.tolist() == [0, 1, 2, 3, 4]
        assert done.logits.tolist() == [0, -1, -2, -3, -4]
        assert (done.report, done.checkpoint) == (True, False)  # rank 0 decides
        assert done.writing == list(range(count))
        assert done.stop is None


def test_weights_of_rows_travel_with_them():
    def work(ranks):
        own = report(ranks)
        return exchange(ranks, replace(own, weights=own.labels * 2), 4)

    for done in on_ranks(3, work):
        assert done.labels.tolist() == [0, 1, 2, 3, 4]
        assert done.weights.tolist() == [0, 2, 4, 6, 8]


def test_a_stop_request_of_any_rank_stops_all():
    def work(ranks):
        return exchange(ranks, report(ranks, stop=15 if ranks.rank == 2 else None), 4)

    assert [done.stop for done in on_ranks(3, work)] == [15, 15, 15]


def test_a_failure_to_read_on_one_rank_is_reported_to_all_with_the_step():
    def work(ranks):
        failure = DataError("bad") if ranks.rank else None
        return exchange(ranks, report(ranks, failure=failure, is_last=bool(ranks.rank)), 4)

    for done in on_ranks(2, work):
        assert done.labels.tolist() == [0, 1, 2, 3, 4]
        assert isinstance(done.failure, HotrowError)
        assert str(done.failure) == "rank 1: bad"
        assert done.failure.on_all_ranks


def test_two_further_batches_are_there_when_all_ranks_have_them():
    for without, all_have in ((0, False), (1, False), (2, True)):
        done = on_ranks(2, lambda r, n=without: exchange(r, report(r, has_two=r.rank != n), 4))
        assert [one.has_two for one in done] == [all_have] * 2


def test_ranks_with_own_rows_end_when_none_has_one():
    for item, after, is_last, has_two in (
        ((5, 3), (5, 0), False, True),
        ((5, 0), (0, 0), False, False),
        ((0, 0), (0, 0), True, False),
    ):
        rows = list(zip(item, after, strict=True))
        done = on_ranks(2, lambda r, n=rows: exchange(r, report(r, next_rows=list(n[r.rank])), 4))
        for one in done:
            assert one.next_rows == [list(of_rank) for of_rank in rows]
            assert (one.is_last, one.has_two) == (is_last, has_two)
            assert one.failure is None


def test_a_rank_whose_file_ends_earlier_is_noticed():
    done = on_ranks(2, lambda ranks: exchange(ranks, report(ranks, is_last=ranks.rank == 1), 4))
    for one in done:
        assert isinstance(one.failure, FailedPreconditionError)
        assert str(one.failure) == (
            "the ranks read different files: rank 1 has no batch after step 4, rank 0 has"
        )


@pytest.mark.parametrize("changes", [{"rows": 4}])
def test_ranks_that_read_different_files_are_noticed(changes):
    def work(ranks):
        return exchange(ranks, report(ranks, **(changes if ranks.rank else {})), 4)

    for result in on_ranks(2, work):
        assert isinstance(result, FailedPreconditionError)
        assert "the ranks read different files" in str(result)
