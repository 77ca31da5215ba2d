"""Test-then-train: servers score each event before the trainer gets it, in compressed time.

Each tick takes the events that are due, asks the server for the scores of all three models at once,
and only then hands the events on. At each full hour of event time the clock stands still until the
trainer has trained all events before it and the server answers with an export of that state as the
hourly model: so the hourly model loses no time, as it would in practice. It stands still, too,
while the newest cut is more than some minutes of event time old: a second of waiting for a busy
machine is minutes of compressed time.
"""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field

import grpc
import numpy as np
import numpy.typing as npt
import tensorflow as tf

from pays.events import Events
from pays.system import MODELS, System

HOUR = 3600.0
TICK_SECONDS = 0.05
_MOST_EVENTS = 2048
_TIMEOUT_SECONDS = 30.0
_ROUNDING = 0.002  # of event times, in seconds
_LOOK_SECONDS = 0.2
MOST_AGE = 300.0
"""Seconds of event time from the newest event of the newest cut to the next tick."""


@dataclass
class Replayed:
    """What a replay of N events brought.

    Attributes:
        scores: float64 [N] by model; NaN where a request failed.
        asked: (Unix seconds, newest event time) of each tick, when its requests are sent.
        milliseconds: of the requests of a tick, all three together.
        failed: requests that failed.
        requests: all.
        lags: events that were handed on and not trained, five times a second.
        seconds: of the replay, without `update_seconds`.
        update_seconds: time in which the clock stood still for the hourly model, by hour.
        waited_seconds: time in which it stood still for the next cut, part of `seconds`.
    """

    scores: dict[str, npt.NDArray[np.float64]]
    asked: list[tuple[float, float]] = field(default_factory=list)
    milliseconds: list[float] = field(default_factory=list)
    failed: int = 0
    requests: int = 0
    lags: list[int] = field(default_factory=list)
    seconds: float = 0.0
    update_seconds: list[float] = field(default_factory=list)
    waited_seconds: float = 0.0


def replay(system: System, events: Events, begin: float, speed: float) -> Replayed:
    """Replays all events.

    Args:
        system: is running.
        events: N events.
        begin: Unix seconds, a full hour of event time; the first hour begins here.
        speed: seconds of event time a second, at most; less if the client does not keep up.
    """
    found = Replayed({model: np.full(len(events), np.nan) for model in MODELS})
    handed_on = [0]
    stop = threading.Event()
    watching = threading.Thread(target=_watch_lag, args=(system, handed_on, found.lags, stop))
    watching.start()
    first = began = time.monotonic()
    hour_end, position = begin + HOUR, 0
    try:
        while position < len(events):
            looked = time.monotonic()
            now = begin + (looked - began) * speed
            end = _end_of_tick(events, position, min(now, hour_end))
            if _is_too_old(max(begin, system.newest_cut()), events, position, end):
                time.sleep(TICK_SECONDS)
                found.waited_seconds += time.monotonic() - looked
                began += time.monotonic() - looked
                continue
            if end > position:
                tick = events.part(position, end)
                _ask(system, tick, position, found)
                system.hand_on(tick)
                position = handed_on[0] = end
            elif now >= hour_end:
                system.update_hourly(position, events.part(0, 1))
                found.update_seconds.append(time.monotonic() - looked)
                began += found.update_seconds[-1] + (now - hour_end) / speed
                hour_end += HOUR
            time.sleep(max(0.0, TICK_SECONDS - (time.monotonic() - looked)))
        found.seconds = time.monotonic() - first - sum(found.update_seconds)
        system.await_trained(position)
    finally:
        stop.set()
        watching.join()
    return found


def _is_too_old(shown: float, events: Events, position: int, end: int) -> bool:
    """Returns whether a tick waits for a cut: one is due, and what is shown is too old for it."""
    due = position > 0 and shown < events.times[position - 1] - _ROUNDING
    return due and end > position and bool(events.times[end - 1] - shown > MOST_AGE)


def _end_of_tick(events: Events, position: int, now: float) -> int:
    """Returns the number of events before `now`, of which at most 2,048 or one time are new."""
    end = int(np.searchsorted(events.times, now, side="left"))
    if end - position > _MOST_EVENTS:
        most = events.times[position + _MOST_EVENTS]
        cut = int(np.searchsorted(events.times, most, side="left"))
        end = cut if cut > position else int(np.searchsorted(events.times, most, side="right"))
    return end


def _ask(system: System, tick: Events, position: int, found: Replayed) -> None:
    sent = time.time()
    replies = {
        model: system.stub.Predict.future(tick.request(model), timeout=_TIMEOUT_SECONDS)
        for model in MODELS
    }
    for model, reply in replies.items():
        found.requests += 1
        try:
            scores = tf.make_ndarray(reply.result().outputs["scores"])
        except grpc.RpcError:
            found.failed += 1
            continue
        found.scores[model][position : position + len(tick)] = scores
    found.asked.append((sent, float(tick.times[-1])))
    found.milliseconds.append((time.time() - sent) * 1e3)


def _watch_lag(
    system: System, handed_on: list[int], lags: list[int], stop: threading.Event
) -> None:
    while not stop.wait(_LOOK_SECONDS):
        before = handed_on[0]
        lags.append(max(0, before - system.status().stream.events))
