"""Labels of versions: what they may point to, and what requests get by them."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any
from urllib.error import URLError

import pytest
from integration.serving.model_configs import (
    WAIT_SECONDS,
    ask,
    label,
    model,
    publish,
    refusal,
    reload,
    specific,
    wait_for,
    write_config,
)

ANY_LABEL = "--allow_version_labels_for_unavailable_models"


def _unavailable(version: int, name: str = "m") -> tuple[str, str]:
    return (
        "FAILED_PRECONDITION",
        f"Request to assign label to version {version} of model {name}, which is not currently "
        "available for inference",
    )


def _unknown(name: str) -> tuple[str, str]:
    return "INVALID_ARGUMENT", f"Unrecognized servable version label: {name}"


@pytest.fixture
def base(two: Path, tmp_path: Path) -> Path:
    """A base path with the versions 1, 2 and 3."""
    return publish(two, tmp_path / "m", 1, 2, 3)


@pytest.fixture
def config(tmp_path: Path) -> Path:
    return tmp_path / "models.txt"


def _serve(start_server: Any, config: Path, *flags: str) -> Any:
    server = start_server("ignored", "", f"--model_config_file={config}", *flags)
    server.wait_ready()
    return server


def test_a_label_chooses_a_version_over_both_wires(
    base: Path, config: Path, start_server: Any
) -> None:
    write_config(config, model("m", base, specific(1, 2)))
    server = _serve(start_server, config)
    wait_for(server, "m", {2: "AVAILABLE", 1: "AVAILABLE"})
    assert refusal(lambda: ask(server, "m", label="stable")) == _unknown("stable")
    reload(server, model("m", base, specific(1, 2), label("stable", 1), label("canary", 2)))
    assert ask(server, "m", label="stable") == (3.0, 1)
    assert ask(server, "m", label="canary") == (3.0, 2)
    assert ask(server, "m") == (3.0, 2)
    body = b'{"instances": [2.0]}'
    assert server.rest("/v1/models/m/labels/stable:predict", body)[0] == 200
    assert '"version": "1"' in server.rest("/v1/models/m/labels/stable/metadata")[1]
    status, text = server.rest("/v1/models/m/labels/other:predict", body)
    assert (status, text) == (
        400,
        '{ "error": "Unrecognized servable version label: other" }',
    )


def test_labels_are_replaced_as_a_whole(base: Path, config: Path, start_server: Any) -> None:
    write_config(config, model("m", base, specific(1, 2)))
    server = _serve(start_server, config)
    wait_for(server, "m", {2: "AVAILABLE", 1: "AVAILABLE"})
    reload(server, model("m", base, specific(1, 2), label("a", 1), label("b", 1)))
    reload(server, model("m", base, specific(1, 2), label("b", 2)))
    assert refusal(lambda: ask(server, "m", label="a")) == _unknown("a")
    assert ask(server, "m", label="b") == (3.0, 2)


def test_a_label_of_a_version_that_does_not_serve_is_refused_with_the_whole_configuration(
    base: Path, config: Path, start_server: Any
) -> None:
    write_config(config, model("m", base, specific(1)))
    server = _serve(start_server, config)
    reload(server, model("m", base, specific(1), label("stable", 1)))
    new = model("m", base, specific(1, 2), label("stable", 1), label("canary", 2))
    assert refusal(lambda: reload(server, new)) == _unavailable(2)
    assert refusal(lambda: ask(server, "m", label="canary")) == _unknown("canary")
    assert ask(server, "m", label="stable") == (3.0, 1)
    assert refusal(lambda: ask(server, "m", version=2))[0] == "NOT_FOUND"
    # In two steps it is legal.
    reload(server, model("m", base, specific(1, 2), label("stable", 1)))
    wait_for(server, "m", {2: "AVAILABLE", 1: "AVAILABLE"})
    reload(server, new)
    assert ask(server, "m", label="canary") == (3.0, 2)


def _first_answer(server: Any, path: str) -> tuple[int, str]:
    end = time.monotonic() + WAIT_SECONDS
    while True:
        try:
            status, body = server.rest(path, b'{"instances": [2.0]}')
        except URLError:  # no server listens yet
            assert time.monotonic() < end, server.log
            time.sleep(0.01)
        else:
            return status, body


def test_with_the_flag_a_new_label_may_point_anywhere_from_the_start(
    base: Path, config: Path, start_server: Any
) -> None:
    write_config(config, model("m", base, specific(1), label("stable", 1), label("later", 9)))
    server = start_server("ignored", "", f"--model_config_file={config}", ANY_LABEL)
    # Every answered request is answered by label: ports open after the configuration.
    assert _first_answer(server, "/v1/models/m/labels/stable:predict") == (
        200,
        '{\n    "predictions": [3.0\n    ]\n}',
    )
    assert ask(server, "m", label="stable") == (3.0, 1)
    assert refusal(lambda: ask(server, "m", label="later")) == (
        "NOT_FOUND",
        "Servable not found for request: Specific(m, 9)",
    )


def test_even_with_the_flag_a_label_does_not_move_to_a_version_that_does_not_serve(
    base: Path, config: Path, start_server: Any
) -> None:
    write_config(config, model("m", base, specific(1, 2), label("stable", 1)))
    server = _serve(start_server, config, ANY_LABEL)
    wait_for(server, "m", {2: "AVAILABLE", 1: "AVAILABLE"})
    moved = model("m", base, specific(1, 2, 3), label("stable", 3))
    assert refusal(lambda: reload(server, moved)) == _unavailable(3)
    assert ask(server, "m", label="stable") == (3.0, 1)
    reload(server, model("m", base, specific(1, 2), label("stable", 2)))
    assert ask(server, "m", label="stable") == (3.0, 2)


def test_the_labels_of_a_model_that_was_removed_are_gone(
    base: Path, config: Path, start_server: Any
) -> None:
    write_config(config, model("m", base, specific(1)))
    server = _serve(start_server, config)
    reload(server, model("m", base, specific(1), label("stable", 1)))
    reload(server)
    assert refusal(lambda: ask(server, "m", label="stable")) == _unknown("stable")
