"""A line of the server's log: read as any of its processes writes it, written in one form.

Everything that a server's processes write to standard error passes through here: our lines,
Python's warnings, and what TensorFlow, gRPC and the C library print. TensorFlow's own form is the
text form, since tools that read tensorflow_model_server's log expect it:

    2026-11-23 15:04:05.123456: I hotrow/serving/lifecycle/servable.py:31] m: version 3 is available

The other form is a JSON object on each line:

    {"time": "2026-11-23T15:04:05.123456Z", "level": "info", "component": "serving.lifecycle",
     "file": "hotrow/serving/lifecycle/servable.py:31", "model": "m", "version": 3,
     "message": "m: version 3 is available"}

It names the model and the version that a line is about, where a record has them (`about`).
"""

from __future__ import annotations

import contextlib
import json
import logging
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

TEXT = "text"
JSON = "json"
FORMATS = (TEXT, JSON)

_LEVELS = {"D": "debug", "I": "info", "W": "warning", "E": "error", "F": "fatal"}
_TIME = "%Y-%m-%d %H:%M:%S.%f"
_TENSORFLOW = re.compile(
    r"(?P<time>\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{6}): (?P<level>[DIWEF]) (?P<file>[^\]\s]+)\] "
    r"(?P<message>.*)",
    re.DOTALL,
)
# Abseil's, which gRPC uses. TensorFlow leaves the day out and gives the seconds since 1970.
_ABSEIL = re.compile(
    r"(?P<level>[IWEF])\d{4} (?:\d\d:\d\d:\d\d\.\d{6}|00:00:(?P<seconds>\d+\.\d+)) +\d+ "
    r"(?P<file>[^\]\s]+:\d+)\] (?P<message>.*)",
    re.DOTALL,
)
# Begins the final error of tensorflow_model_server, and of our other commands.
_LAST_WORDS = re.compile(r"(Failed to start server\. )?Error: ")
# Stands for a line break in a message while it goes from a process to the log.
_LINE_BREAK = "\x1e"
# Comes before the JSON of `about` at the end of a line, on the same way.
_ABOUT = "\x1f"


@dataclass(frozen=True)
class LogLine:
    """A line, and where it comes from.

    Attributes:
        time: when it was written, or else read.
        level: D, I, W, E or F, as TensorFlow writes it.
        file: source file and line, as far as known; "": the final error of a command, which the
            text form prints unchanged.
        message: may have line breaks.
        model: name of the model that it is about; "": none, or not known.
        version: of this model.
    """

    time: datetime
    level: str
    file: str
    message: str
    model: str = ""
    version: int | None = None

    @classmethod
    def now(cls, level: str, file: str, message: str) -> LogLine:
        """Returns a line with the current time."""
        return cls(datetime.now(UTC), level, file, message)

    @classmethod
    def parse(cls, text: str) -> LogLine:
        """Returns the line that a process wrote.

        Args:
            text: a line without its line end. A line in no known form counts as a warning:
                libraries print directly when something is wrong.
        """
        text, subject = _without_subject(text)
        text = text.replace(_LINE_BREAK, "\n")
        if _LAST_WORDS.match(text):
            return cls.now("E", "", text)
        found = _TENSORFLOW.fullmatch(text) or _ABSEIL.fullmatch(text)
        if found is None:
            return cls.now("W", "stderr", text)
        time = _time(found.groupdict())
        return cls(time, found["level"], found["file"], found["message"], **subject)

    def component(self) -> str:
        """Returns the component that wrote it, as in `serving.lifecycle`, or the library."""
        path = self.file.partition(":")[0]
        if path.startswith("hotrow/"):
            parts = path.removeprefix("hotrow/").partition(".")[0].split("/")
            return ".".join(parts[:2])
        for library in ("tensorflow", "xla", "tsl", "redis"):
            if f"/{library}/" in f"/{path}":
                return library
        return "serving" if not path else "hotrow-server" if path.endswith((".cc", ".h")) else path

    def written(self, form: str) -> str:
        """Returns it in the text form or as JSON, without a line's end."""
        if form == JSON:
            fields = {
                "time": self.time.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
                "level": _LEVELS[self.level],
                "component": self.component(),
                **({"file": self.file} if ":" in self.file else {}),
                **({"model": self.model} if self.model else {}),
                **({"version": self.version} if self.version is not None else {}),
                "message": self.message,
            }
            return json.dumps(fields, ensure_ascii=False)
        if not self.file:
            return self.message
        return f"{self.time.astimezone().strftime(_TIME)}: {self.level} {self.file}] {self.message}"


def about(model: str, version: int | None = None) -> dict[str, Any]:
    """Returns the `extra` of a log call whose line is about a model, or about a version of it."""
    return {"about": {"model": model, "version": version}}


class LineFormatter(logging.Formatter):
    """Formats Python's log records so that `LogLine.parse` reads them back."""

    def format(self, record: logging.LogRecord) -> str:
        """Returns the record as one line."""
        message = record.getMessage()
        if record.exc_info:
            message += f"\n{self.formatException(record.exc_info)}"
        line = LogLine(
            datetime.fromtimestamp(record.created, UTC),
            record.levelname[0] if record.levelno < logging.CRITICAL else "F",
            f"{_source_file(record)}:{record.lineno}",
            message,
        )
        text = line.written(TEXT).replace("\n", _LINE_BREAK)
        subject = getattr(record, "about", None)
        return text if subject is None else text + _ABOUT + json.dumps(subject)


def _without_subject(text: str) -> tuple[str, dict[str, Any]]:
    """Returns a line without the model and version at its end, and these."""
    rest, mark, subject = text.rpartition(_ABOUT)
    if mark:
        with contextlib.suppress(ValueError, TypeError, KeyError):
            read = json.loads(subject)
            return rest, {"model": read["model"], "version": read["version"]}
    return text, {}


def _time(found: Mapping[str, str | None]) -> datetime:
    """Returns when a line was written; the current time if the line has none."""
    with contextlib.suppress(ValueError, OverflowError, OSError):
        if text := found.get("time"):
            return datetime.strptime(text, _TIME).astimezone(UTC)
        if seconds := found.get("seconds"):
            return datetime.fromtimestamp(float(seconds), UTC)
    return datetime.now(UTC)


def _source_file(record: logging.LogRecord) -> str:
    """Returns the path of a record's source, from its package on."""
    package = record.name.partition(".")[0]
    before, _, after = record.pathname.rpartition(f"/{package}/")
    return f"{package}/{after}" if before else record.filename
