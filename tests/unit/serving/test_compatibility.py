"""The page on compatibility says what the tests show: it is made of a table that is checked."""

from __future__ import annotations

import ast
import itertools
import re
from pathlib import Path

import click
import pytest
from integration.serving.contract import OURS, SECTIONS, flags
from integration.serving.contract.page import PATH, render
from integration.serving.contract.row import Row, State

from hotrow.cli.ineffective_flags import INEFFECTIVE
from hotrow.cli.main import group

TESTS = Path(__file__).parents[2]
INTEGRATION = TESTS / "integration" / "serving"
ROWS = [row for rows in SECTIONS.values() for row in rows]
NATIVE = TESTS.parent / "serving" / "native" / "tests"
_NATIVE_NAME = re.compile(r"(\w+_test\.cc)::(.+)")
_NAME = re.compile(r"((?:\w+/)?test_\w+\.py)::(test\w+)(?:\[(.+)\])?")
# Not flags of the command, or only its supervisor's.
_INNER_FLAGS = {"control_folder", "lifeline"}
_SAID_IN_THE_HELP = {"grpc_max_threads": "1024"}


def _tests_in(path: Path) -> dict[str, set[str]]:
    """Returns the ids that the parameters of each test of a file have, as far as they are given."""
    return {
        node.name: _cases(node)
        for node in ast.parse(path.read_text()).body
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test")
    }


def _cases(test: ast.FunctionDef) -> set[str]:
    # The mark next to the function comes first in pytest's ids.
    marks = [_ids(mark) for mark in reversed(test.decorator_list)]
    return {"-".join(parts) for parts in itertools.product(*marks)} - {""}


def _ids(mark: ast.expr) -> set[str]:
    """Returns `id=` and `ids=` of a mark, and values that pytest makes ids of."""
    found: set[str] = set()
    for node in ast.walk(mark):
        if isinstance(node, ast.keyword) and node.arg in ("id", "ids"):
            found |= {str(text.value) for text in ast.walk(node.value) if _is_text(text)}
    if found or not isinstance(mark, ast.Call) or len(mark.args) != 2:
        return found
    values = mark.args[1]
    for case in values.elts if isinstance(values, ast.List | ast.Tuple) else []:
        parts = case.elts if isinstance(case, ast.Tuple) else [case]
        if all(isinstance(part, ast.Constant) for part in parts):
            found.add("-".join(str(part.value) for part in parts))
    return found


def _is_text(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


def _file(name: str) -> Path:
    return (TESTS / "unit" / "serving" if "/" in name else INTEGRATION) / name


def test_the_page_is_the_one_that_the_table_makes() -> None:
    text = "run `PYTHONPATH=tests python -m integration.serving.contract`"
    assert PATH.read_text() == render(SECTIONS), text


@pytest.mark.parametrize("title", SECTIONS)
def test_every_test_that_is_named_exists(title: str) -> None:
    for row in SECTIONS[title]:
        for name in row.tests:
            if native := _NATIVE_NAME.fullmatch(name):
                [path] = NATIVE.rglob(native[1])
                assert f'TEST_CASE("{native[2]}")' in path.read_text(), name
                continue
            found = _NAME.fullmatch(name)
            assert found, name
            file, function, case = found.groups()
            assert _file(file).exists(), name
            tests = _tests_in(_file(file))
            assert function in tests, name
            assert case is None or case in tests[function], name


def test_every_test_of_the_server_is_named() -> None:
    there = {
        f"{path.name}::{test}": {f"{path.name}::{test}[{case}]" for case in cases}
        for path in INTEGRATION.glob("test_*.py")
        for test, cases in _tests_in(path).items()
    }
    named = {name for row in ROWS for name in row.tests} | OURS
    missing = {
        name
        for name, cases in there.items()
        # A whole file, the whole test, or each of its cases.
        if not {name, name.split("::")[0]} & named and not (cases and cases <= named)
    }
    assert not missing, "name these in a row of tests/integration/serving/contract"
    assert there.keys() | {name.split("::")[0] for name in there} >= OURS


def test_no_promise_is_listed_twice() -> None:
    titles = [(title, row.what) for title, rows in SECTIONS.items() for row in rows]
    assert len(titles) == len(set(titles))


def _heads(*states: State) -> str:
    """Returns what rows say before their details: flags, each with its default."""
    return "\n".join(re.split("[:;]", row.what)[0] for row in flags.ROWS if row.state in states)


def _named_flags(*states: State) -> set[str]:
    return set(re.findall(r"`(\w+)`", _heads(*states)))


def _parameters() -> dict[str, click.Parameter]:
    command = group.get_command(click.Context(group), "serve")
    assert command is not None
    return {str(one.name): one for one in command.params if one.name not in _INNER_FLAGS}


def test_every_flag_is_listed_as_the_command_reads_it() -> None:
    assert _named_flags(*State) == _parameters().keys()
    assert _named_flags(State.KEPT, State.ADDED).isdisjoint(INEFFECTIVE)


def test_defaults_of_flags_are_those_of_the_command() -> None:
    flags = re.findall(r"`(\w+)` \((\w+)\)", _heads(*State))
    assert len(flags) > 30
    for name, text in flags:
        default = str(_parameters()[name].default).lower().removesuffix(".0")
        # Left to the server, which says it in the help.
        default = _SAID_IN_THE_HELP.get(name, default)
        assert text == (default or "empty"), name


@pytest.mark.parametrize(
    ("state", "why", "tests"),
    [
        pytest.param(State.KEPT, "in a way", ("a",), id="kept with a reason"),
        pytest.param(State.DIFFERS, "", ("a",), id="a difference without one"),
        pytest.param(State.NOT_BUILT, "", (), id="missing without one"),
        pytest.param(State.ADDED, "", (), id="added and shown by nothing"),
    ],
)
def test_a_row_is_refused_that_is(state: State, why: str, tests: tuple[str, ...]) -> None:
    with pytest.raises(ValueError, match="'what'"):
        Row("what", state, tests, why)
