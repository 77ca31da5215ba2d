"""Writes clicks of a drifting model: `python -m hotrow.cli.demo.drifting_clicks TARGET`."""

from __future__ import annotations

import heapq
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Protocol

import click
import numpy as np
from redis.crc import key_slot

from hotrow.cli.failures import report_failure
from hotrow.errors import InvalidArgumentError, UnavailableError
from hotrow.store.access import read_access
from hotrow.store.redis.client import RedisClient
from hotrow.store.url import parse_store_url
from hotrow.trainer.data.synthetic.drifting_clicks import ClickParameters, DriftingClicks
from hotrow.trainer.online.sources.url import parse_source_url

_ADD = """
for i = 2, #ARGV do
  if ARGV[1] == '0' then redis.call('XADD', KEYS[1], '*', 'event', ARGV[i])
  else redis.call('XADD', KEYS[1], 'MAXLEN', '~', ARGV[1], '*', 'event', ARGV[i]) end
end
"""
_EVENTS_AT_ONCE = 2000


class Target(Protocol):
    """Where events go."""

    def write(self, events: list[bytes]) -> None:
        """Appends events."""

    def close(self) -> None:
        """Closes it."""


class FileTarget:
    """A file that grows by whole lines."""

    def __init__(self, path: Path) -> None:
        """Opens it for appending."""
        self._file = path.open("ab")

    def write(self, events: list[bytes]) -> None:
        """Appends events."""
        self._file.write(b"".join(event + b"\n" for event in events))
        self._file.flush()

    def close(self) -> None:
        """Closes the file."""
        self._file.close()


class StreamTarget:
    """Redis Streams, each event in one of them; the URL is that of a source."""

    def __init__(self, url: str, most_entries: int | None = None) -> None:
        """Connects.

        Args:
            url: as `online.source`.
            most_entries: about how many entries a stream keeps; None: all.

        Raises:
            InvalidArgumentError: the URL is not legal.
            UnavailableError, PermissionDeniedError: the server does not answer, or refuses.
        """
        parsed = parse_source_url(url)
        self._streams = parsed.values("stream")
        if not self._streams:
            raise parsed.error("name the stream: ?stream=NAME")
        store = parse_store_url("TARGET", parsed.base)
        self._client = RedisClient(store, parsed.access(read_access()))
        self._most_entries = most_entries or 0
        self._next = 0

    def write(self, events: list[bytes]) -> None:
        """Adds events; after a lost connection some may be there twice.

        Raises:
            HotrowError: the server does not take them.
        """
        for start in range(0, len(events), _EVENTS_AT_ONCE):
            part = events[start : start + _EVENTS_AT_ONCE]
            count = len(self._streams)
            for number, stream in enumerate(self._streams):
                own = part[(number - self._next) % count :: count]
                if own:
                    slot = key_slot(stream.encode())
                    self._client.call(slot, "EVAL", _ADD, 1, stream, self._most_entries, *own)
            self._next = (self._next + len(part)) % count

    def close(self) -> None:
        """Closes the connections."""
        self._client.close()


def open_target(target: str, most_entries: int | None = None) -> Target:
    """Opens a file, or Redis Streams.

    Args:
        target: a path; or the URL of a source, `redis://...?stream=NAME` or `file:PATH`.
        most_entries: see `StreamTarget`.

    Raises:
        HotrowError: see `StreamTarget`; or the file cannot be opened.
    """
    if "://" in target and not target.startswith("file:"):
        return StreamTarget(target, most_entries)
    try:
        return FileTarget(Path(target.removeprefix("file://").removeprefix("file:")))
    except OSError as err:
        raise UnavailableError(f"{target}: {err.strerror}") from err


def event_ticks(
    clicks: DriftingClicks, seconds: float | None, label_delay_seconds: float | None, seed: int
) -> Iterator[tuple[float, list[bytes]]]:
    """Yields the time at the end of each tick, and its events.

    Args:
        clicks: the model.
        seconds: for how long, in event time; None: without end.
        label_delay_seconds: mean time from an event to its click, which is an event of its own;
            None: each event has its label.
        seed: of the delays.
    """
    end = float("inf") if seconds is None else clicks.now + seconds
    waiting: list[tuple[float, bytes]] = []
    rng = np.random.default_rng([seed, 2])
    while clicks.now < end:
        made = clicks.tick()
        if label_delay_seconds is None:
            yield clicks.now, made.json_lines()
            continue
        delays = rng.exponential(label_delay_seconds, len(made.times))
        for label in made.label_lines(delays):
            heapq.heappush(waiting, label)
        events = list(zip(made.times.tolist(), made.json_lines(labelled=False), strict=True))
        while waiting and waiting[0][0] < clicks.now:
            events.append(heapq.heappop(waiting))
        yield clicks.now, [event for _, event in sorted(events, key=lambda one: one[0])]


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("target")
@click.option("--rate", type=click.FloatRange(min=0.01), default=1000.0, show_default=True)
@click.option("--seconds", type=click.FloatRange(min=0), help="Default: without end.")
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True)
@click.option("--users", type=click.IntRange(min=1), default=5000, show_default=True)
@click.option("--items", type=click.IntRange(min=1), default=2000, show_default=True)
@click.option(
    "--drift-seconds",
    type=click.FloatRange(min=0.1),
    default=300.0,
    show_default=True,
    help="Time after which 1/e of an item's effect is left.",
)
@click.option(
    "--label-delay-seconds",
    type=click.FloatRange(min=0),
    help="Clicks are events of their own, this much later on average. Default: in the event.",
)
@click.option(
    "--speed",
    default="1",
    show_default=True,
    help="Times real speed; max: without waiting. Above 1, times end now if there are --seconds.",
)
@click.option(
    "--skip-seconds",
    type=click.FloatRange(min=0),
    default=0.0,
    help="Leave out this much of the beginning, which another run has written.",
)
@click.option("--keep", type=click.IntRange(min=1), help="About how many entries a stream keeps.")
def command(
    target: str,
    rate: float,
    seconds: float | None,
    seed: int,
    users: int,
    items: int,
    drift_seconds: float,
    label_delay_seconds: float | None,
    speed: str,
    skip_seconds: float,
    keep: int | None,
) -> None:
    """Writes click events as JSON to TARGET, a file or redis://HOST/?stream=NAME."""
    factor = _speed(speed)
    began = time.time()
    first = began - _ahead_seconds(seconds, factor)
    tick_seconds = min(1.0, max(0.02, 20.0 / rate))
    parameters = ClickParameters(
        seed=seed,
        rate=rate,
        users=users,
        items=items,
        drift_seconds=drift_seconds,
        start=first - skip_seconds,
        tick_seconds=tick_seconds,
    )
    into = open_target(target, keep)
    try:
        clicks = DriftingClicks(parameters)
        for _ in range(round(skip_seconds / tick_seconds)):
            clicks.tick()
        for moment, events in event_ticks(clicks, seconds, label_delay_seconds, seed):
            if factor is not None:
                time.sleep(max(0.0, (moment - first) / factor - (time.time() - began)))
            into.write(events)
    finally:
        into.close()


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command and returns its exit code."""
    try:
        command.main(arguments, prog_name="drifting_clicks", standalone_mode=False)
    except (Exception, KeyboardInterrupt) as err:
        return report_failure(err, debug=False)
    return 0


def _ahead_seconds(seconds: float | None, factor: float | None) -> float:
    """Returns how far event time would get ahead of the clock; without end it does."""
    if seconds is None:
        return 0.0
    return seconds if factor is None else seconds * max(0.0, 1.0 - 1.0 / factor)


def _speed(text: str) -> float | None:
    try:
        factor = None if text == "max" else float(text)
    except ValueError:
        factor = -1.0
    if factor is not None and not factor > 0:
        raise InvalidArgumentError(f"--speed {text}: must be max, or a number above 0")
    return factor


if __name__ == "__main__":
    sys.exit(main())
