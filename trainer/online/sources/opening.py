"""`open_source`: opens the source of an URL."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

from hotrow.config import RunConfig
from hotrow.errors import InvalidArgumentError
from hotrow.store.access import StoreAccess
from hotrow.store.url import parse_store_url
from hotrow.trainer.online.dead_letters import DeadLetters
from hotrow.trainer.online.decoder import Decoder
from hotrow.trainer.online.merged import MergedSource
from hotrow.trainer.online.partitions import Partitions
from hotrow.trainer.online.sources.awaited import AwaitedPartitions
from hotrow.trainer.online.sources.files import FilePartitions
from hotrow.trainer.online.sources.kafka import KafkaPartitions, read_settings
from hotrow.trainer.online.sources.redis_streams import RedisPartitions
from hotrow.trainer.online.sources.replay import ReplayPartitions
from hotrow.trainer.online.sources.url import SourceUrl, parse_source_url

_REDIS = ("stream", "group", "gaps", "password_file", "ca", "cert", "key")


def open_source(
    config: RunConfig,
    decoder: Decoder,
    dead_letters: DeadLetters,
    access: StoreAccess,
    report: Callable[[str], None],
    *,
    may_be_away: bool = False,
) -> MergedSource:
    """Opens the source of `config.online.source`.

    Args:
        config: the run's configuration; it has a source.
        decoder: of the run.
        dead_letters: for bad events.
        access: credentials, unless the URL names files of its own.
        report: called with a line for who runs the trainer.
        may_be_away: whether a source that does not answer yet has no events until it does.

    Raises:
        InvalidArgumentError: the URL is not legal, or does not fit the format of events.
        NotFoundError, DataError: a file cannot be opened.
        UnavailableError: the source does not answer.
        PermissionDeniedError: it refuses the user.
    """
    url = parse_source_url(config.online.source or "")

    def connected(connect: Callable[[], Partitions]) -> Partitions:
        return AwaitedPartitions(connect, decoder, report) if may_be_away else connect()

    partitions: Partitions
    match url.scheme:
        case "file":
            url.require_only()
            partitions = FilePartitions(Path(url.path), config.data, decoder, dead_letters, report)
        case "replay":
            url.require_only("speed")
            paths = [Path(path) for path in url.paths]
            speed = _speed(url)
            if speed != math.inf and config.online.time is None:
                raise url.error("a speed needs the time of events; set online.time")
            partitions = ReplayPartitions(paths, speed, config.data, decoder, dead_letters)
        case "kafka":
            partitions = connected(lambda: _kafka(url, decoder, report))
        case _:
            partitions = connected(lambda: _redis(url, decoder, access, report))
    return MergedSource(partitions, dead_letters, f"online.source {url.shown}")


def _redis(
    url: SourceUrl, decoder: Decoder, access: StoreAccess, report: Callable[[str], None]
) -> RedisPartitions:
    url.require_only(*_REDIS)
    streams = url.values("stream")
    if not streams or not all(streams) or len(set(streams)) != len(streams):
        raise url.error("name each stream once: ?stream=NAME[&stream=NAME]...")
    decoder.require_no_header(url.shown)
    return RedisPartitions(
        parse_store_url("online.source", url.base),
        url.access(access),
        streams,
        url.value("group") or None,
        url.fails_on_gaps(),
        decoder,
        report,
    )


def _kafka(url: SourceUrl, decoder: Decoder, report: Callable[[str], None]) -> KafkaPartitions:
    url.require_only("group", "gaps", "config")
    brokers, _, topic = url.path.removeprefix("//").partition("/")
    if "@" in brokers:
        raise url.error("users and passwords go to the file of config=FILE, not into the URL")
    if not url.path.startswith("//") or not all(brokers.split(",")) or not topic or "/" in topic:
        raise url.error("name brokers and topic")
    decoder.require_no_header(url.shown)
    return KafkaPartitions(
        brokers,
        topic,
        url.value("group") or None,
        read_settings(url.value("config")) if url.value("config") else {},
        url.fails_on_gaps(),
        decoder,
        report,
    )


def _speed(url: SourceUrl) -> float:
    text = url.value("speed") or "max"
    try:
        speed = math.inf if text == "max" else float(text)
    except ValueError:
        speed = math.nan
    if not speed > 0:
        error: InvalidArgumentError = url.error(
            f"speed {text!r}: must be max, or a number above 0: times real speed"
        )
        raise error
    return speed
