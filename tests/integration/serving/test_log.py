"""Standard error of a server's processes, in one form."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import socket
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from integration.serving.conftest import PREFIX
from integration.serving.model_configs import ask, model, refusal, reload
from integration.serving.server_processes import control_of, data_plane_of

KEYS = {"time", "level", "component", "file", "message", "model", "version"}


@pytest.mark.parametrize("form", ["text", "json"])
def test_every_line_of_every_process_is_of_one_form(
    base: Path, tmp_path: Path, start_server: Any, form: str
) -> None:
    models = tmp_path / "models"
    shutil.copytree(base, models)
    server = start_server("half", models, f"--log_format={form}", "--max_num_load_retries=0")
    ready = server.wait_ready()
    lines = len(server.lines)
    for _ in range(20):  # no line for a request, whether it is answered or refused
        assert server.rest_predict({"instances": [1.0]})[0] == 200
        assert server.rest_predict({"instances": ["a"]})[0] == 400
        assert ask(server, "half") == (3.0, 123)
        assert refusal(lambda: ask(server, "missing"))[0] == "NOT_FOUND"
    assert server.lines[lines:] == []
    reload(server, model("half", models), model("other", base))
    server.wait_for_log("other: version 123 is available")
    damaged = tmp_path / "124"
    shutil.copytree(next(models.iterdir()), damaged)
    for file in (damaged / "variables").glob("*.data-*"):
        os.truncate(file, 1)
    damaged.rename(models / "124")
    server.wait_for_log("half: version 124 failed to load")
    with socket.create_connection(("127.0.0.1", server.rest_port)) as client:
        client.sendall(b"no HTTP at all\r\n\r\n")
        assert client.recv(100).startswith(b"HTTP/1.1 400")
        host, port = client.getsockname()
    server.wait_for_log(f"client {host}:{port}: Invalid HTTP request received.")
    os.kill(data_plane_of(server), signal.SIGKILL)
    server.wait_for_log("hotrow-server serves again")
    os.kill(control_of(server), signal.SIGKILL)
    server.wait_for_log("the control process serves again")
    assert server.terminate() == 0

    if form == "text":
        assert ready.startswith("Serving half version 123: ")
        assert [line for line in server.lines if not re.match(PREFIX, line)] == []
        levels = {re.sub(PREFIX, "", line): line.split(": ", 1)[1][0] for line in server.lines}
    else:
        said = [json.loads(line) for line in [ready, *server.lines]]
        assert all(fields.keys() <= KEYS for fields in said)
        times = [datetime.fromisoformat(fields["time"]) for fields in said]
        assert all(abs((datetime.now(UTC) - time).total_seconds()) < 600 for time in times)
        assert said[0]["message"].startswith("Serving half version 123: ")
        assert {"serving.lifecycle", "serving.data_plane", "serving.native"} <= {
            fields["component"] for fields in said
        }
        levels = {fields["message"]: fields["level"][0].upper() for fields in said}
        about = {f["message"]: (f.get("model"), f.get("version")) for f in said}
        of_versions = {text: named for text, named in about.items() if ": version " in text}
        assert set(of_versions.values()) == {
            ("half", 123),
            ("half", 124),
            ("other", 123),
        }
        for text, (name, version) in of_versions.items():
            assert text.startswith(f"{name}: version {version} ")
        (ended,) = [text for text in about if text.startswith("hotrow-server ended")]
        assert about[ended] == (None, None)
    expected = {
        "half: version 123 is available": "I",
        "the configuration has changed: half, other": "I",
        "half: version 124 failed to load": "E",
        "client ": "W",
        "hotrow-server ended": "E",
        "the control process ended": "E",
        "the control process serves again": "I",
    }
    for begin, level in expected.items():
        assert {levels[message] for message in levels if message.startswith(begin)} == {level}
    (failure,) = [message for message in levels if "version 124 failed" in message]
    assert f"{models}/124: Read less bytes than requested" in failure


def test_an_error_before_the_start_is_of_that_form_too(start_server: Any) -> None:
    server = start_server("half", "", "--log_format=json")
    assert server.wait_exit() == 255
    fields = json.loads(server.lines[-1])
    assert (fields["level"], fields["component"]) == ("error", "serving")
    assert fields["message"].startswith("Failed to start server. Error: Both server_options.")


def test_a_flag_that_cannot_be_read_is_of_that_form_too(start_server: Any) -> None:
    server = start_server("half", "", "--log_format=json", "--drain_seconds=long")
    assert server.wait_exit() == 255
    (line,) = server.lines
    assert "'long' is not a valid float" in json.loads(line)["message"]
