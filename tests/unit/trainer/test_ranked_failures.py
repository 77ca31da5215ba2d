"""What goes wrong on one rank ends the training of all, with the same error, and loses nothing."""

from __future__ import annotations

import threading

import pytest
from unit.trainer.ranked_training import config_of, newest, slow, train_on, write_files

from hotrow.config import parse_config
from hotrow.errors import HotrowError, InvalidArgumentError
from hotrow.ops.ranks import LONE, thread_ranks
from hotrow.trainer.data import DataError
from hotrow.trainer.loop import train


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    return write_files(tmp_path_factory.mktemp("data"))


def test_an_error_of_one_rank_ends_all(files, tmp_path, monkeypatch):
    from hotrow.trainer import batch_feed

    exchange = batch_feed.exchange

    def failing(ranks, own, step):
        if ranks.rank == 1 and step == 3:
            raise RuntimeError("no more")
        return exchange(ranks, own, step)

    monkeypatch.setattr(batch_feed, "exchange", failing)
    results = train_on(3, config_of(files, 3), tmp_path / "run")
    assert isinstance(results[1], RuntimeError)
    for rank in (0, 2):
        assert isinstance(results[rank], HotrowError)
        assert "rank 1: " in str(results[rank])
        assert "no more" in str(results[rank])


def fail_to_read(monkeypatch, batches, rank, error=None):
    """Lets one rank have so many batches in its epoch, then an error or no more."""
    from hotrow.trainer import loop

    make = loop.with_inputs

    def failing(stream):
        for number, batch in enumerate(make(stream)):
            if stream._part.rank == rank and number == batches:
                if error is not None:
                    raise error
                return
            yield batch

    monkeypatch.setattr(loop, "with_inputs", failing)


@pytest.mark.parametrize(
    ("batches", "rank"),
    [(0, 1), (1, 0), (4, 1), *(slow(*case) for case in ((0, 0), (1, 1), (2, 0), (2, 1), (4, 0)))],
)
def test_a_rank_that_cannot_read_on_ends_all_with_its_error(
    files, tmp_path, monkeypatch, batches, rank
):
    fail_to_read(monkeypatch, batches, rank, DataError("line 7"))
    config = config_of(files, 2, train={"eval_every_steps": None})
    results = train_on(2, config, tmp_path / "run")
    expected = "rank 1: line 7" if rank else "line 7"
    assert [(str(result), result.exit_code) for result in results] == [(expected, 1)] * 2


@pytest.mark.parametrize("batches", [0, slow(1), 4])
def test_a_rank_whose_data_ends_early_ends_all(files, tmp_path, monkeypatch, batches):
    fail_to_read(monkeypatch, batches, 1)
    results = train_on(2, config_of(files, 2), tmp_path / "run")
    for result in results:
        assert str(result) == (
            f"the ranks read different files: rank 1 has no batch after step {batches}, rank 0 has"
        )


def test_what_cannot_be_read_after_the_last_step_is_not_missed(files, tmp_path, monkeypatch):
    fail_to_read(monkeypatch, 4, 1, DataError("line 7"))
    results = train_on(2, config_of(files, 2, train={"max_steps": 4}), tmp_path / "run")
    assert [getattr(result, "steps", result) for result in results] == [4, 4]
    assert newest(tmp_path / "run").name == "step-00000004"


def test_a_checkpoint_that_is_due_before_a_failure_to_read_is_written(files, tmp_path, monkeypatch):
    fail_to_read(monkeypatch, 5, 1, DataError("line 7"))
    results = train_on(2, config_of(files, 2, checkpoint={"every_steps": 5}), tmp_path / "run")
    assert [str(result) for result in results] == ["rank 1: line 7"] * 2
    assert newest(tmp_path / "run").name == "step-00000005"


def test_malformed_rows_end_all_ranks_with_the_same_error(files, tmp_path):
    text = (files / "train.tsv").read_text().splitlines()
    text[200] = "broken"
    (tmp_path / "broken.tsv").write_text("\n".join(text))
    config = config_of(files, 2, data={"train": str(tmp_path / "broken.tsv")})
    results = train_on(2, config, tmp_path / "run")
    assert [str(result) for result in results] == [str(results[0])] * 2
    assert "broken.tsv: line 201" in str(results[0])
    assert results[0].exit_code == 1


def test_a_key_outside_of_the_vocabulary_on_one_rank_ends_all(files, tmp_path):
    lines = [f"{i % 2} {'999' if i == 50 else i % 7}:1" for i in range(64)]
    (tmp_path / "ids.libsvm").write_text("\n".join(lines) + "\n")
    config = parse_config(
        {
            "name": "ids",
            "data": {"format": "libsvm", "train": str(tmp_path / "ids.libsvm"), "batch_size": 16},
            "features": {"sparse": {"columns": ["ids"], "dim": 4, "hash": False}},
            "tables": {"default": {"vocabulary_size": 100}},
            "model": {"arch": "wide_deep", "hidden": [4]},
            "train": {"shuffle": False},
            "parallel": {"workers": 2},
        }
    )
    results = train_on(2, config, tmp_path / "run")
    for result in results:
        assert isinstance(result, HotrowError)
        assert "999" in str(result)


def test_the_number_of_ranks_must_be_that_of_the_configuration(files, tmp_path):
    with pytest.raises(InvalidArgumentError, match="workers is 2, but 1 ranks train"):
        train(config_of(files, 2), tmp_path / "run", ranks=LONE)


def test_ranks_with_other_configurations_are_refused(files, tmp_path):
    one, other = config_of(files, 2), config_of(files, 2, train={"epochs": 7})
    results = [None, None]

    def run(rank, config):
        try:
            train(config, tmp_path / "run", ranks=rank)
        except InvalidArgumentError as err:
            results[rank.rank] = str(err)

    threads = [
        threading.Thread(target=run, args=pair)
        for pair in zip(thread_ranks(2, 60.0), (one, other), strict=True)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all("configuration of rank 1 differs" in result for result in results)
