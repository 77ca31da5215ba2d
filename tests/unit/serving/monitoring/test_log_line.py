"""Lines of the server's log: read in every form in which its processes write, written in one."""

from __future__ import annotations

import json
import logging
from datetime import UTC, datetime

import pytest

from hotrow.serving.monitoring.log_line import JSON, TEXT, LineFormatter, LogLine, about

NOON = datetime(2026, 11, 23, 12, 0, 0, 123456, tzinfo=UTC)
LOCAL = NOON.astimezone().strftime("%Y-%m-%d %H:%M:%S.%f")


@pytest.mark.parametrize(
    ("written", "level", "component", "file", "message"),
    [
        pytest.param(
            f"{LOCAL}: I hotrow/serving/lifecycle/servable.py:31] m: version 3 is available",
            *("info", "serving.lifecycle", "hotrow/serving/lifecycle/servable.py:31"),
            "m: version 3 is available",
            id="ours",
        ),
        pytest.param(
            f"{LOCAL}: W external/org_tensorflow/tensorflow/core/x.cc:7] OUT_OF_RANGE: [a] b",
            *("warning", "tensorflow", "external/org_tensorflow/tensorflow/core/x.cc:7"),
            "OUT_OF_RANGE: [a] b",
            id="TensorFlow's",
        ),
        pytest.param(
            f"E0000 00:00:{NOON.timestamp():.6f}    5648 tcp_server.cc:31] address in use",
            *("error", "hotrow-server", "tcp_server.cc:31", "address in use"),
            id="gRPC's",
        ),
        pytest.param(
            f"{LOCAL}: E hotrow/serving/wire/status.py:71] unforeseen\x1eTraceback\x1e  File",
            *("error", "serving.wire", "hotrow/serving/wire/status.py:71"),
            "unforeseen\nTraceback\n  File",
            id="of several lines",
        ),
    ],
)
def test_a_line_is_read(written: str, level: str, component: str, file: str, message: str) -> None:
    line = LogLine.parse(written)
    assert line.time == NOON
    assert json.loads(line.written(JSON)) == {
        "time": "2026-11-23T12:00:00.123456Z",
        "level": level,
        "component": component,
        "file": file,
        "message": message,
    }
    assert line.written(TEXT) == f"{LOCAL}: {level[0].upper()} {file}] {message}"


@pytest.mark.parametrize(
    "written",
    [
        pytest.param("malloc(): corrupted top size", id="the C library's"),
        pytest.param("2026-11-23: I am no line of a log", id="nearly a line"),
        pytest.param("", id="empty"),
    ],
)
def test_what_is_in_no_form_is_a_warning_of_now(written: str) -> None:
    line = LogLine.parse(written)
    assert (line.level, line.file, line.message) == ("W", "stderr", written)
    assert abs((datetime.now(UTC) - line.time).total_seconds()) < 60
    assert "file" not in json.loads(line.written(JSON))


@pytest.mark.parametrize(
    "written",
    ["2026-13-41 99:00:00.123456: I a.cc:1] x", f"E0000 00:00:{'9' * 40}.1  5 a.cc:1] x"],
)
def test_a_time_that_is_none_is_now(written: str) -> None:
    line = LogLine.parse(written)
    assert abs((datetime.now(UTC) - line.time).total_seconds()) < 60
    assert (line.file, line.message) == ("a.cc:1", "x")


def test_the_last_words_of_a_command_stay_as_they_are() -> None:
    line = LogLine.parse("Failed to start server. Error: no room")
    assert line.written(TEXT) == "Failed to start server. Error: no room"
    assert json.loads(line.written(JSON))["level"] == "error"


def test_pythons_records_are_read_back() -> None:
    try:
        raise ValueError("of two\nlines")
    except ValueError as err:
        record = logging.LogRecord(
            *("hotrow.serving.s", logging.ERROR, "/x/hotrow/platform/hotrow/serving/s.py", 71),
            *("unforeseen %s", ("error",), (type(err), err, err.__traceback__)),
        )
    text = LineFormatter().format(record)
    assert "\n" not in text
    line = LogLine.parse(text)
    assert (line.level, line.file) == ("E", "hotrow/serving/s.py:71")
    assert line.message.startswith("unforeseen error\nTraceback (most recent call last):\n")
    assert line.message.endswith("ValueError: of two\nlines")
    assert abs(line.time.timestamp() - record.created) < 1e-5


@pytest.mark.parametrize("version", [3, None])
def test_a_record_says_which_model_it_is_about(version: int | None) -> None:
    logger = logging.getLogger("hotrow.x")
    text = "m: of \x1f several\nlines"
    record = logger.makeRecord(
        logger.name, logging.INFO, "/hotrow/x.py", 1, text, (), None, extra=about("m", version)
    )
    line = LogLine.parse(LineFormatter().format(record))
    assert (line.message, line.model, line.version) == (record.msg, "m", version)
    assert line.written(TEXT).endswith("] m: of \x1f several\nlines")
    fields = json.loads(line.written(JSON))
    assert (fields["model"], fields.get("version")) == ("m", version)


@pytest.mark.parametrize("end", ["", "{", "7", '{"model": "m"}', "[]"])
def test_an_end_that_is_not_ours_stays_in_the_line(end: str) -> None:
    text = f"{LOCAL}: I a.cc:7] said \x1f{end}"
    assert LogLine.parse(text).written(TEXT) == text
