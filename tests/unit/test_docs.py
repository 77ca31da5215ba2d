"""The pages of docs/ say what the code does: keys, defaults, YAML, command lines, programs."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import click
import pytest
import yaml
from pydantic import BaseModel
from pydantic_core import PydanticUndefined

from hotrow.cli.ineffective_flags import INEFFECTIVE
from hotrow.cli.invocation import Invocation
from hotrow.cli.main import group
from hotrow.config import RunConfig, ScheduleConfig, parse_config
from hotrow.config.yaml_text import parse_yaml

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = sorted(DOCS.glob("*.md"))
_FENCE = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_ROW = re.compile(r"^\| `([\w.<>]+)` \|[^|]*\| ([^|]*) \|", re.MULTILINE)
_END_OF_COMMAND = {"&", "&&", "|", ">", "2>", ";"}


def blocks(language: str) -> list[Any]:
    return [
        pytest.param(found[2], id=f"{page.name}, block {number}")
        for page in PAGES
        for number, found in enumerate(_FENCE.finditer(page.read_text()), start=1)
        if found[1] == language
    ]


def command_lines() -> list[Any]:
    return [
        pytest.param(line, id=f"{page.name}: {line.split('#')[0].strip()}")
        for page in PAGES
        for _, text in (found.groups() for found in _FENCE.finditer(page.read_text()))
        for line in text.replace("\\\n", " ").splitlines()
        if line.startswith("platform ")
    ]


def sections(annotation: Any) -> list[type[BaseModel]]:
    """Returns the sections that an annotation holds, at any depth."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [found for part in get_args(annotation) for found in sections(part)]


def keys(model: type[BaseModel], prefix: str = "") -> Iterator[tuple[str, str | None]]:
    """Yields (path, default as YAML or None if required) of every value below a section."""
    for name, field in model.model_fields.items():
        path, inner = prefix + name, sections(field.annotation)
        # Sections of one kind have a heading, not a row; an initializer may be given as a text.
        if name == "initializer" or (path != "model" and field.annotation not in inner):
            default = field.get_default(call_default_factory=True)
            yield path, None if default is PydanticUndefined else as_yaml(default)
        step = ".<name>." if name == "tables" else "."
        for section in inner:
            # A schedule may be used several times and is explained once.
            is_schedule = section is ScheduleConfig
            yield from keys(section, "learning_rate." if is_schedule else path + step)


def as_yaml(value: Any) -> str:
    if isinstance(value, BaseModel):
        value = value.model_dump(mode="json")
    value = list(value) if isinstance(value, tuple) else value
    text = yaml.safe_dump(value, default_flow_style=True, width=1000)
    return text.removesuffix("...\n").strip()


def test_the_table_of_keys_is_that_of_the_schema() -> None:
    written = dict(_ROW.findall((DOCS / "configuration.md").read_text()))
    expected: dict[str, str] = {}
    for path, default in keys(RunConfig):
        text = "required" if default is None else f"`{default}`"
        assert expected.setdefault(path, text) == text, f"{path} has two defaults"
    expected["name"] = "the file's name"  # load_config fills it in
    assert written == expected


@pytest.mark.parametrize("text", blocks("yaml"))
def test_every_yaml_block_is_a_legal_configuration(text: str) -> None:
    parse_config(parse_yaml(text))


@pytest.mark.parametrize("line", command_lines())
def test_every_command_line_parses(line: str) -> None:
    words = shlex.split(line, comments=True)
    cut = next((i for i, word in enumerate(words) if word in _END_OF_COMMAND), len(words))
    command: click.Command = group
    context = click.Context(group, info_name="platform", obj=Invocation())
    rest = words[1:cut]
    while isinstance(command, click.Group):
        name, found, rest = command.resolve_command(context, rest)
        assert found is not None
        command = found
        if isinstance(command, click.Group):
            context = click.Context(command, info_name=name, parent=context)
    command.make_context(command.name, rest, parent=context)


def test_the_flags_of_serve_are_kept_apart_as_the_command_does() -> None:
    page = (DOCS / "serving.md").read_text()
    lines = r"^(`model_name`.*|These flags are accepted and .*|This flag is not built: .*)$"
    working, ineffective, unbuilt = (
        set(re.findall(r"`(\w+)`", line)) for line in re.findall(lines, page, re.MULTILINE)
    )
    command = group.get_command(click.Context(group), "serve")
    assert command is not None
    # The last two are the supervisor's own.
    flags = {parameter.name for parameter in command.params} - {"control_folder", "lifeline"}
    assert ineffective == INEFFECTIVE.keys()
    assert unbuilt == {"use_alts_credentials"}
    assert working == flags - ineffective - unbuilt


@pytest.mark.parametrize("text", blocks("python"))
def test_every_program_is_python(text: str) -> None:
    compile(text, "docs", "exec")


def test_the_program_of_the_training_page_runs(tmp_path: Path) -> None:
    text = (DOCS / "training.md").read_text()
    program = "\n".join(found[2] for found in _FENCE.finditer(text) if found[1] == "python")
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "{'users': 3, 'items': 3}" in done.stdout


def test_the_program_of_the_page_of_tables_runs(tmp_path: Path) -> None:
    text = (DOCS / "tables.md").read_text()
    program = "\n".join(found[2] for found in _FENCE.finditer(text) if found[1] == "python")
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "[ True False]" in done.stdout
    assert "(2,) (2, 4)" in done.stdout


def test_the_program_of_the_page_of_online_sources_runs(tmp_path: Path) -> None:
    text = (DOCS / "online_sources.md").read_text()
    program = next(found[2] for found in _FENCE.finditer(text) if found[1] == "python")
    printed = [found[2] for found in _FENCE.finditer(text) if found[1] == "text"][-1]
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == printed


def _anchors(page: Path) -> set[str]:
    """Returns the anchors that GitHub gives the headings of a page."""
    text = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    headings = re.findall(r"^#{1,6} (.+)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize(
    "page",
    [
        pytest.param(ROOT / name, id=name)
        for name in subprocess.run(
            ["git", "ls-files", "*.md"], cwd=ROOT, capture_output=True, text=True, check=True
        ).stdout.split()
    ],
)
def test_links_lead_somewhere(page: Path) -> None:
    for path, anchor in re.findall(r"\]\(([^)#:\s]*)(?:#([^)\s]+))?\)", page.read_text()):
        target = page.parent / path if path else page
        assert target.exists(), path
        if anchor and target.suffix == ".md":
            assert anchor in _anchors(target), f"{path}#{anchor}"
