"""Partitions are merged by event time; the order does not depend on how many events are read."""

from __future__ import annotations

import random
from collections.abc import Collection, Mapping
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from hotrow.errors import DataLossError
from hotrow.trainer.online import merged
from hotrow.trainer.online.dead_letters import DeadLetters
from hotrow.trainer.online.merged import MergedSource
from hotrow.trainer.online.partitions import Chunk, Offset, Polled
from hotrow.trainer.online.source import Events, Lag, Position


class InMemory:
    """Partitions of (time, number); a number below 0 is a bad event."""

    def __init__(self, partitions: dict[str, list[tuple[float, int]]], chunk: int = 3) -> None:
        self.partitions = partitions
        self.chunk = chunk
        self.ends = True

    def poll(
        self, offsets: Mapping[str, Offset], busy: Collection[str], wait_seconds: float
    ) -> Polled:
        chunks = {}
        left = False
        for key, every in self.partitions.items():
            at = offsets.get(key, 0)
            left = left or at < len(every)
            if key in busy or at >= len(every):
                continue
            part = every[at : at + self.chunk]
            kept = [index for index, (_, number) in enumerate(part) if number >= 0]
            chunks[key] = Chunk(
                events([part[index] for index in kept]),
                [at + index + 1 for index in kept],
                at + len(part),
            )
        return Polled(chunks, ended=self.ends and not left)

    def no_events(self) -> Events:
        return events([])

    def lag(self, offsets: Mapping[str, Offset]) -> Lag:
        return Lag()

    def note_saved(self, offsets: Mapping[str, Offset]) -> None: ...

    def close(self) -> None: ...


def merge(partitions: InMemory, name: str = "it") -> MergedSource:
    return MergedSource(partitions, DeadLetters(Path("none"), 0, print), name)


def events(some: list[tuple[float, int]]) -> Events:
    numbers = pa.array([number for _, number in some], pa.int64())
    rows = pa.RecordBatch.from_arrays([numbers], names=["number"])
    return Events(rows, np.array([time for time, _ in some], dtype=np.float64))


def numbers_of(events: Events) -> list[int]:
    found: list[int] = events.rows.column("number").to_pylist()
    return found


def read_all(source: MergedSource, sizes: list[int], position: Position | None = None) -> list[int]:
    """Reads to the end, so many events at a time."""
    numbers: list[int] = []
    position = position or {}
    while found := source.read(position, sizes[len(numbers) % len(sizes)], 0.0):
        got, position = found
        numbers += numbers_of(got)
    return numbers


def random_partitions(seed: int, bad: float = 0.2) -> dict[str, list[tuple[float, int]]]:
    rng = random.Random(seed)
    number = iter(range(10_000))
    return {
        name: [
            (float(rng.randrange(20)), -1 if rng.random() < bad else next(number))
            for _ in range(rng.randrange(15))
        ]
        for name in "abc"
    }


def in_order(partitions: dict[str, list[tuple[float, int]]]) -> list[int]:
    """Merges one event at a time."""
    left = {key: [one for one in every if one[1] >= 0] for key, every in partitions.items()}
    numbers = []
    while any(left.values()):
        key = min((every[0][0], key) for key, every in left.items() if every)[1]
        numbers.append(left[key].pop(0)[1])
    return numbers


@pytest.mark.parametrize("seed", range(30))
def test_the_order_is_that_of_a_merge_of_the_next_events(seed: int) -> None:
    partitions = random_partitions(seed)
    expected = in_order(partitions)
    for sizes in ([1], [2, 3], [7], [100]):
        for chunk in (1, 3, 100):
            assert read_all(merge(InMemory(partitions, chunk), "it"), sizes) == expected


@pytest.mark.parametrize("seed", range(10))
def test_a_new_source_goes_on_from_any_position(seed: int) -> None:
    partitions = random_partitions(seed)
    expected = in_order(partitions)
    source = merge(InMemory(partitions), "it")
    numbers: list[int] = []
    position: Position = {}
    while found := source.read(position, 2, 0.0):
        got, position = found
        numbers += numbers_of(got)
        again = merge(InMemory(partitions), "it")
        assert numbers + read_all(again, [3], position) == expected


@pytest.mark.parametrize("seed", range(30))
def test_reads_are_repeated_in_their_order_though_more_has_arrived(seed: int) -> None:
    rng = random.Random(seed)
    partitions = random_partitions(seed)
    shown: dict[str, list[tuple[float, int]]] = {key: [] for key in partitions}
    growing = InMemory(shown)
    growing.ends = False
    source = merge(growing, "it")
    position: Position = {}
    reads = []
    for _ in range(40):
        key = rng.choice("abc")
        count = rng.randrange(4)
        shown[key] += partitions[key][len(shown[key]) :][:count]
        found = source.read(position, rng.randrange(1, 6), 0.0)
        assert found is not None
        reads.append((position, found[0], found[1]))
        position = found[1]
    assert sum(len(one.times) for _, one, _ in reads) > 0
    again = merge(InMemory(partitions), "it")
    for start, one, end in reads:
        if len(one.times):
            repeated, behind = again.read_again(start, one.counts)
            assert numbers_of(repeated) == numbers_of(one)
            # Bad events behind the last good one may be passed by the one and not by the other.
            assert in_order_from(partitions, behind) == in_order_from(partitions, end)


def in_order_from(partitions: dict[str, list[tuple[float, int]]], position: Position) -> list[int]:
    return in_order({key: every[position.get(key, 0) :] for key, every in partitions.items()})


def test_events_that_are_not_there_again_are_missed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(merged, "AGAIN_SECONDS", 0.0)
    source = merge(InMemory({"a": [(1.0, 1)]}), "redis:x")
    with pytest.raises(DataLossError, match=r"redis:x: 1 events of a were read before"):
        source.read_again({}, {"a": 2})


def test_events_are_awaited_while_their_source_is_away(monkeypatch: pytest.MonkeyPatch) -> None:
    class Away(InMemory):
        left = 5

        def poll(
            self, offsets: Mapping[str, Offset], busy: Collection[str], wait_seconds: float
        ) -> Polled:
            self.left -= 1
            return Polled(away=True) if self.left else super().poll(offsets, busy, wait_seconds)

    monkeypatch.setattr(merged, "AGAIN_SECONDS", 0.0)
    found, _ = merge(Away({"a": [(1.0, 1), (2.0, 2)]})).read_again({}, {"a": 2})
    assert numbers_of(found) == [1, 2]


def test_without_events_the_columns_are_there() -> None:
    partitions = InMemory({"a": []})
    partitions.ends = False
    found = merge(partitions, "it").read({}, 5, 0.0)
    assert found is not None
    assert found[0].rows.schema.names == ["number"]
    assert found[1] == {}
