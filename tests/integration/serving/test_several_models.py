"""Several models under one server, from a configuration file."""

from __future__ import annotations

import functools
import os
import shutil
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from integration.serving.model_configs import (
    ask,
    label,
    model,
    publish,
    refusal,
    specific,
    states,
    wait_for,
    write_config,
)
from integration.serving.refused_starts import refused_start

NO_RETRY = "--max_num_load_retries=0"


@pytest.fixture
def serve(start_server: Any, tmp_path: Path) -> Callable[..., Any]:
    """Starts a server of these models."""

    def start(*models: str, flags: tuple[str, ...] = ()) -> Any:
        path = write_config(tmp_path / "models.txt", *models)
        return start_server("ignored", "", f"--model_config_file={path}", *flags)

    return start


def test_every_model_of_the_file_is_served(
    testdata: Path, tmp_path: Path, start_server: Any
) -> None:
    text = (testdata / "good_model_config.txt").read_text()
    for name, folder in (
        ("TWO", "saved_model_half_plus_two_2_versions"),
        ("THREE", "saved_model_half_plus_three"),
    ):
        text = text.replace(f"${{TEST_HALF_PLUS_{name}_DIR}}", str(testdata / folder))
    path = tmp_path / "models.txt"
    path.write_text(text)
    server = start_server("ignored", tmp_path / "ignored", f"--model_config_file={path}")
    assert server.wait_ready() == (
        "Serving half_plus_three version 123, half_plus_two version 124: "
        f"gRPC 127.0.0.1:{server.port}, REST 127.0.0.1:{server.rest_port}"
    )
    assert ask(server, "half_plus_two") == (3.0, 124)
    assert ask(server, "half_plus_three") == (4.0, 123)
    body = b'{"instances": [2.0]}'
    assert "4.0" in server.rest("/v1/models/half_plus_three:predict", body)[1]
    assert refusal(lambda: ask(server, "ignored")) == (
        "NOT_FOUND",
        "Servable not found for request: Latest(ignored)",
    )
    assert refusal(lambda: states(server, "ignored")) == (
        "NOT_FOUND",
        "Could not find any versions of model ignored",
    )


def test_a_file_that_is_no_configuration_ends_it(testdata: Path) -> None:
    path = testdata / "bad_model_config.txt"
    log = refused_start("ignored", "", f"--model_config_file={path}")
    assert log[-2].startswith("Error parsing text-format tensorflow.serving.ModelServerConfig: 1:1")
    assert log[-1] == f"Invalid protobuf file: '{path}'"


def test_a_file_that_is_not_there_ends_it(tmp_path: Path) -> None:
    path = tmp_path / "nothing.txt"
    log = refused_start("ignored", "", f"--model_config_file={path}")
    assert log[-1] == f"{path}; No such file or directory"


def test_an_empty_file_serves_no_model(tmp_path: Path, start_server: Any) -> None:
    path = tmp_path / "models.txt"
    path.write_text("")
    server = start_server("ignored", "", f"--model_config_file={path}")
    assert server.wait_ready().startswith("Serving no model: ")
    assert refusal(lambda: ask(server, "any"))[0] == "NOT_FOUND"


@pytest.mark.parametrize(
    ("models", "text"),
    [
        pytest.param(
            [model("m", "/m"), model("m", "/n")],
            "Illegal to list model m multiple times in config list",
            id="a name twice",
        ),
        pytest.param(
            [model("m", "models/m")],
            "Expected model m to have an absolute path or URI; got base_path()=models/m",
            id="a relative path",
            marks=pytest.mark.slow,
        ),
        pytest.param(
            ['config { name: "m" base_path: "/m" }'],
            "Illegal setting neither ModelServerConfig::model_type (deprecated) nor "
            "ModelServerConfig::model_platform, model name is m",
            id="no platform",
            marks=pytest.mark.slow,
        ),
        pytest.param(
            ['config { name: "m" base_path: "/m" model_platform: "torch" }'],
            "Model m requests unsupported platform torch",
            id="another platform",
            marks=pytest.mark.slow,
        ),
        pytest.param(
            [model("m", "/m", label("stable", 1))],
            "Request to assign label to version 1 of model m, which is not currently available "
            "for inference",
            id="a label of a version that does not serve yet",
        ),
    ],
)
def test_it_does_not_start_with(serve: Any, models: list[str], text: str) -> None:
    server = serve(*models)
    assert server.wait_exit() == 255
    assert server.log[-1] == f"Failed to start server. Error: {text}"


def test_every_model_that_fails_is_named(two: Path, tmp_path: Path, serve: Any) -> None:
    good = publish(two, tmp_path / "good", 1)
    for name in ("bad", "worse"):
        (tmp_path / name / "7").mkdir(parents=True)
    server = serve(
        model("bad", tmp_path / "bad"),
        model("good", good),
        model("worse", tmp_path / "worse"),
        flags=(NO_RETRY,),
    )
    assert server.wait_exit() == 255
    # Versions that serve are unloaded meanwhile, and log it.
    (line,) = (line for line in server.log if line.startswith("Failed to start server."))
    assert line.startswith(
        "Failed to start server. Error: 2 model(s) did not become available: "
        "{{{name: bad version: 7} due to error: NOT_FOUND: "
    )
    assert "}, {{name: worse version: 7} due to error: NOT_FOUND: " in line


def test_ports_open_when_every_model_serves(two: Path, tmp_path: Path, serve: Any) -> None:
    first, second = publish(two, tmp_path / "first", 1), tmp_path / "second"
    second.mkdir()
    server = serve(model("first", first), model("second", second))
    server.wait_for_log("first: version 1 is available")
    server.wait_for_log(f"No versions of servable second found under base path {second}.")
    for port in (server.port, server.rest_port):
        with socket.socket() as client:
            assert client.connect_ex(("127.0.0.1", port)) != 0
    publish(two, second, 5)
    assert server.wait_ready().startswith("Serving first version 1, second version 5: ")


def test_one_version_of_each_model_opens_the_ports(two: Path, tmp_path: Path, serve: Any) -> None:
    """As in TF Serving: of those that are done, the highest decides."""
    base = publish(two, tmp_path / "m", 1, 3)
    (base / "2").mkdir()
    server = serve(model("m", base, "model_version_policy { all {} }"))
    server.wait_ready()
    wait_for(server, "m", {3: "AVAILABLE", 2: "LOADING", 1: "AVAILABLE"})


def test_a_policy_chooses_the_versions(two: Path, tmp_path: Path, serve: Any) -> None:
    base = publish(two, tmp_path / "m", 1, "0002", 3, 4)
    policies = {
        "latest": ("", {4}),
        "latest_2": ("model_version_policy { latest { num_versions: 2 } }", {4, 3}),
        "all": ("model_version_policy { all {} }", {4, 3, 2, 1}),
        "specific": (specific(1, 3), {3, 1}),
    }
    server = serve(*(model(name, base, policy) for name, (policy, _) in policies.items()))
    server.wait_ready()
    for name, (_, versions) in policies.items():
        wait_for(server, name, dict.fromkeys(sorted(versions)[::-1], "AVAILABLE"))
        assert ask(server, name) == (3.0, max(versions))
        for version in range(1, 5):
            if version in versions:
                assert ask(server, name, version=version) == (3.0, version)
            else:
                asked = functools.partial(ask, server, name, version=version)
                assert refusal(asked) == (
                    "NOT_FOUND",
                    f"Servable not found for request: Specific({name}, {version})",
                )


def test_the_latest_versions_move_on(two: Path, tmp_path: Path, serve: Any) -> None:
    base = publish(two, tmp_path / "m", 1, 2)
    server = serve(model("m", base, "model_version_policy { latest { num_versions: 2 } }"))
    server.wait_ready()
    # One that claims more than any memory is not refused for it.
    with (publish(two, tmp_path / "new", 3) / "3" / "rows").open("wb") as rows:
        rows.truncate(2**40)
    (tmp_path / "new" / "3").rename(base / "3")
    wait_for(server, "m", {3: "AVAILABLE", 2: "AVAILABLE", 1: "END"})
    assert list(states(server, "m")) == [3, 2, 1]


def test_a_specific_version_that_is_not_there_is_waited_for(
    two: Path, tmp_path: Path, serve: Any
) -> None:
    base = publish(two, tmp_path / "m", 1, 9)
    server = serve(model("m", base, specific(1, 7)))
    server.wait_for_log("Version 7 of servable m, which was requested to be served")
    server.wait_ready()
    assert states(server, "m") == {1: "AVAILABLE"}
    publish(two, base, 7)
    wait_for(server, "m", {7: "AVAILABLE", 1: "AVAILABLE"})


def test_a_base_path_without_versions_unloads_all_of_them(
    two: Path, three: Path, tmp_path: Path, serve: Any
) -> None:
    base, other = publish(two, tmp_path / "m", 1, 2), publish(three, tmp_path / "other", 1)
    server = serve(model("m", base, "model_version_policy { all {} }"), model("other", other))
    server.wait_ready()
    for version in (1, 2):
        (base / str(version)).rename(tmp_path / f"away{version}")
    wait_for(server, "m", {2: "END", 1: "END"})
    server.wait_for_log("No versions of servable m found under base path")
    assert ask(server, "other") == (4.0, 1)


def test_a_base_path_that_is_gone_unloads_nothing(
    two: Path, three: Path, tmp_path: Path, serve: Any
) -> None:
    """And holds up no other model, unlike in TF Serving."""
    base, other = publish(two, tmp_path / "m", 1), publish(three, tmp_path / "other", 1)
    server = serve(model("m", base), model("other", other))
    server.wait_ready()
    base.rename(tmp_path / "away")
    server.wait_for_log(f"Could not find base path {base} for servable m with error")
    publish(three, other, 2)
    wait_for(server, "other", {2: "AVAILABLE", 1: "END"})
    assert ask(server, "m") == (3.0, 1)


def test_a_slow_load_of_one_model_holds_up_no_other(
    two: Path, three: Path, tmp_path: Path, serve: Any
) -> None:
    slow, quick = publish(two, tmp_path / "slow", 1), publish(three, tmp_path / "quick", 1)
    server = serve(model("slow", slow), model("quick", quick))
    server.wait_ready()
    shutil.copytree(two, tmp_path / "copy")
    index = tmp_path / "copy" / "variables" / "variables.index"
    index.unlink()
    os.mkfifo(index)  # opening it blocks until a writer opens it
    (tmp_path / "copy").rename(slow / "2")
    wait_for(server, "slow", {2: "LOADING", 1: "AVAILABLE"})
    publish(three, quick, 2)
    wait_for(server, "quick", {2: "AVAILABLE", 1: "END"})
    assert ask(server, "slow") == (3.0, 1)
    assert states(server, "slow") == {2: "LOADING", 1: "AVAILABLE"}
    assert server.terminate() == 0


def test_threads_limit_how_many_versions_load_and_unload(
    two: Path, tmp_path: Path, serve: Any
) -> None:
    bases = [publish(two, tmp_path / f"m{i}", 1) for i in range(3)]
    server = serve(
        *(model(base.name, base) for base in bases),
        flags=("--num_load_threads=1", "--num_unload_threads=1"),
    )
    server.wait_ready()
    for base in bases:
        publish(two, base, 2, 3)
    for base in bases:
        server.wait_for_log(f"{base.name}: version 3 is available")
        server.wait_for_log(f"{base.name}: version 1 is unloaded")
        assert ask(server, base.name) == (3.0, 3)
