"""`KafkaPartitions`: the partitions of a Kafka topic, by librdkafka's client confluent-kafka.

An offset is that of the next message. Partitions are assigned with the offsets of the position, so
neither the group's coordinator nor its committed offsets decide what is read.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from hotrow.errors import (
    DataLossError,
    FailedPreconditionError,
    InvalidArgumentError,
    NotFoundError,
    PermissionDeniedError,
    UnavailableError,
)
from hotrow.trainer.online.decoder import Decoder
from hotrow.trainer.online.partitions import Chunk, Offset, Offsets, Polled
from hotrow.trainer.online.records import Records
from hotrow.trainer.online.source import Events, Lag

kafka: Any = None
try:
    import confluent_kafka

    kafka = confluent_kafka
except ImportError:  # an extra of the package
    pass

_MESSAGES = 2048
_MOST_STASHED = 8192
_ANSWER_SECONDS = 10.0
_LAG_SECONDS = 1.0
_METADATA_SECONDS = 30.0
_OWN = ("bootstrap.servers", "group.id", "enable.auto.commit", "auto.offset.reset")
"""Settings that a file may not have: the URL and positions decide about these."""


class KafkaPartitions:
    """Reads a topic; a partition is named by its number."""

    def __init__(
        self,
        brokers: str,
        topic: str,
        group: str | None,
        settings: Mapping[str, str],
        fails_on_gaps: bool,
        decoder: Decoder,
        report: Callable[[str], None],
    ) -> None:
        """Connects.

        Args:
            brokers: `host:port` of some, separated by commas.
            topic: its name; it exists.
            group: consumer group whose offsets follow what checkpoints have; None: none.
            settings: more settings of librdkafka, such as those of TLS and SASL.
            fails_on_gaps: whether messages that were deleted unread are an error; otherwise they
                are reported.
            decoder: of the run.
            report: called with a line for who runs the trainer.

        Raises:
            FailedPreconditionError: the client is not installed.
            InvalidArgumentError: a setting is not legal.
            NotFoundError: there is no such topic.
            PermissionDeniedError: the broker refuses the user.
            UnavailableError: no broker answers.
        """
        if kafka is None:
            raise FailedPreconditionError(
                "online.source kafka:...: needs the package confluent-kafka; install hotrow[kafka]"
            )
        self._name = f"kafka://{brokers}/{topic}"
        self._topic = topic
        self._commits = group is not None
        self._fails_on_gaps = fails_on_gaps
        self._decoder = decoder
        self._report = report
        self._is_away = True  # an error of the first call says why
        own = dict(zip(_OWN, (brokers, group or "hotrow", False, "error"), strict=True))
        self._settings = {"queued.max.messages.kbytes": 16384, **settings, **own}
        try:
            self._consumer = kafka.Consumer(self._settings | {"error_cb": self._on_error})
        except (kafka.KafkaException, ValueError, TypeError) as err:
            raise InvalidArgumentError(f"online.source {self._name}: {err}") from err
        self._watcher: Any = None  # a client lets one thread call it
        self._at: dict[str, int] = {}  # behind what `poll` returned
        self._unread: set[str] = set()  # partitions that are at their beginning
        self._stashed: dict[str, deque[Any]] = {}
        self._paused: set[str] = set()
        self._saved: Mapping[str, Offset] = {}
        self._known_at = 0.0
        try:
            self._keys = self._find_partitions()
        except BaseException:
            self._consumer.close()
            raise
        self._is_away = False

    def poll(
        self, offsets: Mapping[str, Offset], busy: Collection[str], wait_seconds: float
    ) -> Polled:
        """See `Partitions`; while no broker answers, there are no events."""
        if time.monotonic() - self._known_at > _METADATA_SECONDS:
            self._find_more_partitions()
        self._commit(asynchronous=True)
        self._go_to(offsets, busy)
        wanted = [key for key in self._keys if key not in busy]
        if not any(self._stashed[key] for key in wanted):
            self._fetch(wait_seconds)
        chunks = {key: self._next(key, offsets) for key in wanted if self._stashed[key]}
        self._pause_full()
        return Polled(chunks, away=self._is_away)

    def no_events(self) -> Events:
        """See `Partitions`."""
        return self._decoder.no_events()

    def lag(self, offsets: Mapping[str, Offset]) -> Lag:
        """Returns the number of messages behind the offsets."""
        events = 0
        if self._watcher is None:
            self._watcher = kafka.Consumer(self._settings)
        try:
            for key in self._keys:
                low, high = self._watcher.get_watermark_offsets(
                    self._partition(key), timeout=_LAG_SECONDS
                )
                events += max(0, high - max(low, offsets.get(key, 0)))
        except kafka.KafkaException as err:
            raise self._refusal(err.args[0]) from err
        return Lag(events, None if events else 0.0)

    def note_saved(self, offsets: Mapping[str, Offset]) -> None:
        """Commits offsets for the group, soon, in the thread that reads."""
        self._saved = offsets

    def close(self) -> None:
        """Commits offsets that were not committed, and closes the connections."""
        self._commit(asynchronous=False)
        self._consumer.close()
        if self._watcher is not None:
            self._watcher.close()

    def _commit(self, asynchronous: bool) -> None:
        saved, self._saved = self._saved, {}
        if not self._commits or not saved or self._is_away:
            return
        parts = [self._partition(key, offset) for key, offset in saved.items()]
        try:
            self._consumer.commit(offsets=parts, asynchronous=asynchronous)
        except kafka.KafkaException as err:  # nothing depends on it
            self._report(f"online.source {self._name}: offsets are not committed: {err}")

    def _partition(self, key: str, offset: int | None = None) -> Any:
        more = () if offset is None else (offset,)
        return kafka.TopicPartition(self._topic, int(key), *more)

    def _find_partitions(self) -> list[str]:
        """Returns the names of the partitions.

        Raises:
            NotFoundError, PermissionDeniedError, UnavailableError: as `__init__`.
        """
        try:
            found = self._consumer.list_topics(self._topic, timeout=_ANSWER_SECONDS)
        except kafka.KafkaException as err:
            raise self._refusal(err.args[0]) from err
        topic = found.topics[self._topic]
        if topic.error is not None:
            raise self._refusal(topic.error)
        if not topic.partitions:
            raise self._refusal(kafka.KafkaError(kafka.KafkaError.UNKNOWN_TOPIC_OR_PART))
        self._known_at = time.monotonic()
        keys = [str(number) for number in sorted(topic.partitions)]
        for key in keys:
            self._stashed.setdefault(key, deque())
        return keys

    def _find_more_partitions(self) -> None:
        self._known_at = time.monotonic()
        try:
            keys = self._find_partitions()
        except (UnavailableError, NotFoundError):
            return
        if keys != self._keys:
            self._keys = keys
            self._at = {}  # all are assigned anew

    def _go_to(self, offsets: Mapping[str, Offset], busy: Collection[str]) -> None:
        """Assigns the partitions anew, unless the reader goes on where it stopped."""
        begins = {key: offsets.get(key) for key in self._keys if key not in busy}
        begins |= {key: self._at.get(key, offsets.get(key)) for key in busy}
        # A partition without an offset begins anew if the reader dropped what it had of it.
        if self._at and all(
            key in self._unread if begin is None else begin == self._at[key]
            for key, begin in begins.items()
        ):
            return
        try:
            self._at = {
                key: self._bounds(key)[0] if begin is None else int(begin)
                for key, begin in begins.items()
            }
            self._unread = {key for key, begin in begins.items() if begin is None}
            for stash in self._stashed.values():
                stash.clear()
            self._paused.clear()
            self._consumer.assign([self._partition(key, at) for key, at in self._at.items()])
        except kafka.KafkaException as err:
            self._at = {}
            raise self._refusal(err.args[0]) from err

    def _bounds(self, key: str) -> tuple[int, int]:
        """Returns the offsets of the first message of a partition, and behind the last one."""
        low, high = self._consumer.get_watermark_offsets(
            self._partition(key), timeout=_ANSWER_SECONDS
        )
        return int(low), int(high)

    def _fetch(self, wait_seconds: float) -> None:
        """Brings messages of all partitions."""
        jumps: dict[str, int] = {}
        for message in self._consumer.consume(_MESSAGES, wait_seconds):
            error = message.error()
            if error is None:
                self._stashed[str(message.partition())].append(message)
                self._note_answer()
            elif error.code() != kafka.KafkaError._PARTITION_EOF:
                self._on_message_error(error, str(message.partition()), jumps)
        if jumps:
            goes_on = {key: self._fetched(key) for key in self._keys} | jumps
            self._paused.clear()
            self._consumer.assign([self._partition(key, at) for key, at in goes_on.items()])

    def _fetched(self, key: str) -> int:
        """Returns the offset behind the messages that were fetched."""
        stash = self._stashed[key]
        return int(stash[-1].offset()) + 1 if stash else self._at[key]

    def _next(self, key: str, offsets: Mapping[str, Offset]) -> Chunk:
        """Returns the next events of a partition, which has some."""
        stash = self._stashed[key]
        messages = [stash.popleft() for _ in range(min(_MESSAGES, len(stash)))]
        numbers = [message.offset() for message in messages]
        records = Records(
            [message.value() or b"" for message in messages],
            np.array([_received(message) for message in messages]),
            lambda index: {"topic": self._topic, "partition": int(key), "offset": numbers[index]},
        )
        decoded = self._decoder.decode(records)
        start = self._at[key] if key not in offsets else None
        self._unread.discard(key)
        self._at[key] = numbers[-1] + 1
        behind = Offsets([numbers[index] for index in decoded.kept.tolist()], _behind)
        return Chunk(decoded.events, behind, self._at[key], start)

    def _pause_full(self) -> None:
        """Stops fetching from partitions that are read faster than the others."""
        full = {key for key, stash in self._stashed.items() if len(stash) >= _MOST_STASHED}
        if more := full - self._paused:
            self._consumer.pause([self._partition(key) for key in sorted(more)])
        if fewer := self._paused - full:
            self._consumer.resume([self._partition(key) for key in sorted(fewer)])
        self._paused = full

    def _on_message_error(self, error: Any, key: str, jumps: dict[str, int]) -> None:
        """Handles a message that is an error: mostly that an offset does not exist.

        Args:
            error: what is wrong.
            key: partition.
            jumps: takes where the partition goes on behind a gap.
        """
        codes = kafka.KafkaError
        if error.code() in (codes.OFFSET_OUT_OF_RANGE, codes._AUTO_OFFSET_RESET):
            at = self._fetched(key)
            low, high = self._bounds(key)
            self._gap(key, at, low, high)
            jumps[key] = low if at < low else high
        elif error.retriable() or error.code() in (codes._TRANSPORT, codes._ALL_BROKERS_DOWN):
            self._on_error(error)
        else:
            raise self._refusal(error)

    def _gap(self, key: str, at: int, low: int, high: int) -> None:
        what = f"online.source {self._name}: partition {key}: "
        if at < low:
            what += f"{low - at:,} messages from offset {at} on were deleted before being read"
        else:
            what += (
                f"offset {at} was read up to, and the partition ends at {high}: it was made anew"
            )
        if self._fails_on_gaps:
            raise DataLossError(
                f"{what}; train less late, or keep messages longer (retention.ms, "
                "retention.bytes); to go on without them, add gaps=report to the URL"
            )
        self._report(f"{what}; gaps=report goes on without them")

    def _refusal(self, error: Any) -> Exception:
        """Returns Hotrow's error for one of librdkafka."""
        codes, text = kafka.KafkaError, f"online.source {self._name}: {error.str()}"
        if error.code() in (codes.UNKNOWN_TOPIC_OR_PART, codes._UNKNOWN_TOPIC):
            return NotFoundError(f"{text}; create the topic {self._topic!r}")
        if error.code() in (
            codes._AUTHENTICATION,
            codes.SASL_AUTHENTICATION_FAILED,
            codes.TOPIC_AUTHORIZATION_FAILED,
            codes.GROUP_AUTHORIZATION_FAILED,
        ):
            return PermissionDeniedError(f"{text}; check the file of config= in the URL")
        return UnavailableError(f"{text}; does a broker run there?")

    def _on_error(self, error: Any) -> None:
        """Reports once that no broker answers; librdkafka goes on trying."""
        if error.code() == kafka.KafkaError._ALL_BROKERS_DOWN and not self._is_away:
            self._is_away = True
            self._report(f"online.source {self._name}: no events while no broker answers: {error}")

    def _note_answer(self) -> None:
        if self._is_away:
            self._is_away = False
            self._report(f"online.source {self._name} answers again")


def read_settings(path: str) -> dict[str, str]:
    """Returns the settings of a file, `name=value` lines; blank lines and # comments are left out.

    Raises:
        NotFoundError: there is no such file.
        InvalidArgumentError: a line is no setting, or one that the URL has.
    """
    try:
        text = Path(path).read_text()
    except OSError as err:
        raise NotFoundError(f"online.source: config={path}: {err.strerror}") from err
    settings: dict[str, str] = {}
    for number, line in enumerate(text.splitlines(), start=1):
        name, equals, value = line.partition("=")
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        if not equals or name.strip() in _OWN:
            raise InvalidArgumentError(
                f"online.source: config={path}: line {number} is not name=value, or names one of "
                f"{', '.join(_OWN)}, which the URL and positions decide"
            )
        settings[name.strip()] = value.strip()
    return settings


def _behind(number: int) -> int:
    return number + 1


def _received(message: Any) -> float:
    kind, milliseconds = message.timestamp()
    return time.time() if kind == kafka.TIMESTAMP_NOT_AVAILABLE else milliseconds / 1000.0
