"""The command group: help without TensorFlow, one line an error, exit codes."""

from __future__ import annotations

import errno
import json
import subprocess
import sys
from importlib import metadata

import click
import pytest

from hotrow.cli import main as cli
from hotrow.cli import serve
from hotrow.cli.failures import report_failure
from hotrow.cli.lazy_group import LazyGroup
from hotrow.errors import HotrowError, InvalidArgumentError, NotFoundError


def platform(*arguments, **options):
    return subprocess.run(
        [sys.executable, "-m", "hotrow.cli.main", *arguments],
        capture_output=True,
        text=True,
        check=False,
        **options,
    )


def test_help_lists_every_command_and_imports_no_tensorflow():
    program = (
        "import sys; from hotrow.cli.main import main; code = main(['--help']);"
        "assert 'tensorflow' not in sys.modules and 'keras' not in sys.modules; sys.exit(code)"
    )
    result = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stderr
    assert "Usage: platform" in result.stdout
    context = click.Context(cli.group)
    for name in cli.group.list_commands(context):
        assert f"\n  {name} " in result.stdout
    assert "train" in cli.group.list_commands(context)


@pytest.mark.parametrize("name", cli.group.list_commands(click.Context(cli.group)))
def test_every_command_explains_itself(name):
    result = platform(name, "--help")
    assert result.returncode == 0, result.stderr
    assert result.stdout.startswith(f"Usage: platform {name} ")
    assert len(result.stdout.splitlines()) > 5


def test_no_arguments_print_the_help_and_are_a_usage_error():
    result = platform()
    assert result.returncode == 2
    assert "Usage: platform" in result.stderr


@pytest.mark.parametrize("name", ["platform", "hotrow"])
def test_help_has_the_name_by_which_the_command_was_called(name, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", [f"/somewhere/bin/{name}", "--help"])
    assert cli.main() == 0
    assert capsys.readouterr().out.startswith(f"Usage: {name} ")
    assert cli.main(["data", "--help"]) == 0
    assert capsys.readouterr().out.startswith(f"Usage: {name} data ")


@pytest.mark.parametrize("flag", ["--version", "--version=true"])
def test_serve_prints_its_version_as_tensorflow_serving_does(flag, capsys):
    assert cli.main(["serve", flag]) == 0
    assert capsys.readouterr().out.startswith("TensorFlow ModelServer: hotrow ")


def test_both_names_are_installed():
    scripts = metadata.distribution("hotrow").entry_points.select(group="console_scripts")
    assert {script.name for script in scripts} == set(cli.NAMES)
    assert {script.value for script in scripts} == {"hotrow.cli.main:main"}


def test_the_version_is_printed():
    assert platform("--version").stdout.startswith("platform, version ")


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["trian"], "Error: no command 'trian' (did you mean 'train'?); legal: "),
        (["--nope"], "Error: No such option '--nope' (see 'platform --help')"),
        (["train"], "Error: Missing argument 'CONFIG.yaml' (see 'platform train --help')"),
        (["train", "c.yaml", "--workers", "0"], "0 is not in the range x>=1"),
        (["train", "no.yaml"], "Error: no such configuration file: no.yaml; give a YAML file"),
    ],
)
def test_a_mistake_is_one_line(arguments, line, tmp_path):
    result = platform(*arguments, cwd=tmp_path)
    assert result.returncode in (1, 2)
    assert line in result.stderr
    assert len(result.stderr.splitlines()) == 1
    assert result.stdout == ""


def test_debug_shows_the_traceback(tmp_path):
    result = platform("--debug", "train", "no.yaml", cwd=tmp_path)
    assert "Traceback (most recent call last)" in result.stderr
    assert result.stderr.splitlines()[-1].startswith("Error: no such configuration file")


@pytest.fixture
def group():
    """Runs a function as the command `platform train`."""
    registered = cli.group.get_command

    def run(monkeypatch, function):
        command = click.Command("train", callback=function)
        monkeypatch.setattr(LazyGroup, "get_command", lambda *_: command)
        return cli.main(["train"])

    assert registered is not None
    return run


@pytest.mark.parametrize(
    ("error", "code", "line"),
    [
        (InvalidArgumentError("a: 1 is not legal"), 2, "Error: a: 1 is not legal"),
        (NotFoundError("no such run"), 1, "Error: no such run"),
        (HotrowError("two\nlines"), 1, "Error: two lines"),
        (ValueError("odd"), 1, "Error: ValueError: odd ('platform --debug ...' shows where)"),
        (ValueError(), 1, "Error: ValueError"),
        (FileNotFoundError(2, "No such file or directory", "x"), 1, "Error: No such file or"),
        (KeyboardInterrupt(), 130, "Interrupted"),
        (KeyboardInterrupt("stopped at step 3"), 130, "stopped at step 3"),
        (SystemExit(143), 143, ""),
        (SystemExit(), 0, ""),
        (SystemExit("words"), 1, "words"),
        (click.BadParameter("bad"), 2, "Error: Invalid value: bad"),
        (click.ClickException("simple"), 1, "Error: simple"),
    ],
)
def test_every_error_has_its_line_and_exit_code(group, monkeypatch, capsys, error, code, line):
    def fail():
        raise error

    assert group(monkeypatch, fail) == code
    lines = [text for text in capsys.readouterr().err.splitlines() if text]
    assert lines == [] if not line else lines[0].startswith(line)
    assert len(lines) <= 1


def test_a_command_that_succeeds_exits_with_0(group, monkeypatch):
    assert group(monkeypatch, lambda: None) == 0
    assert group(monkeypatch, lambda: 3) == 3


def test_a_planned_command_without_its_module_is_named_and_not_listed(capsys):
    group = LazyGroup(name="platform", help="x", lazy={"nothing_here": "Help.", "train": "Help."})
    assert group.list_commands(click.Context(group)) == ["train"]
    with pytest.raises(HotrowError, match="platform nothing_here: this command is not built yet"):
        group.get_command(click.Context(group), "nothing_here")


def test_the_level_of_tensorflows_messages_is_set_by_main_unless_the_user_did(monkeypatch, capsys):
    import os

    monkeypatch.delenv("TF_CPP_MIN_LOG_LEVEL", raising=False)
    cli.main(["--version"])
    assert os.environ["TF_CPP_MIN_LOG_LEVEL"] == "2"
    monkeypatch.setenv("TF_CPP_MIN_LOG_LEVEL", "0")
    cli.main(["--version"])
    assert os.environ["TF_CPP_MIN_LOG_LEVEL"] == "0"


def test_debug_prints_the_traceback_before_the_line(capsys):
    assert report_failure(HotrowError("a line"), debug=True) == 1
    lines = capsys.readouterr().err.splitlines()
    assert lines[0].endswith("HotrowError: a line")
    assert lines[-1] == "Error: a line"


def test_serve_says_why_it_cannot_begin_in_the_form_of_its_log(monkeypatch, capsys):
    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device", "/tmp/hotrow-x")

    monkeypatch.setattr(serve, "supervise", full)
    command = ["serve", "--model_base_path=/models/m", "--rest_api_port=0", "--log_format=json"]
    assert cli.main(command) == 255
    line = json.loads(capsys.readouterr().err)
    wanted = "Failed to start server. Error: No space left on device: /tmp/hotrow-x"
    assert (line["level"], line["message"]) == ("error", wanted)
