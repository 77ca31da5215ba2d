"""The page docs/tfserving_compatibility.md, generated from the rows."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from integration.serving.contract.row import Row, State

PATH = Path(__file__).parents[4] / "docs" / "tfserving_compatibility.md"
NO_TEST = "no test"

_HEAD = """\
# Compatibility with TensorFlow Serving

This page compares `tensorflow_model_server` and `platform serve`, row by row. It is generated \
from [a table](../tests/integration/serving/contract) beside the tests, and a test checks it \
against them. Do not edit it. Change the table, then run \
`PYTHONPATH=tests python -m integration.serving.contract`.

- **kept**: the same as in TensorFlow Serving, including codes and texts of errors.
- **differs**: the row gives TensorFlow Serving's behaviour, then what is done here or why.
- **added**: TensorFlow Serving does not have it.
- **not built**: missing here; tests show how it is refused.

No test covers a row with *no test*. Names of tests are pytest's: `test_file.py` is in \
`tests/integration/serving`, `room/test_file.py` in `tests/unit/serving`, and a C++ file in \
`serving/native/tests`.
"""


def render(sections: Mapping[str, tuple[Row, ...]]) -> str:
    """Returns the page as Markdown.

    Args:
        sections: rows by the title of their section.
    """
    return "\n".join(
        [_HEAD, _counts(sections), *(_section(title, rows) for title, rows in sections.items())]
    )


def _counts(sections: Mapping[str, tuple[Row, ...]]) -> str:
    names = [*State, NO_TEST]
    lines = [_line(["section", *names]), "|---|" + "---:|" * len(names)]
    for title, rows in sections.items():
        counts = [sum(row.state is state for row in rows) for state in State]
        lines.append(_line([title, *map(str, [*counts, sum(not row.tests for row in rows)])]))
    return "\n".join(lines) + "\n"


def _section(title: str, rows: tuple[Row, ...]) -> str:
    lines = [f"## {title}", "", "| what | here | shown by |", "|---|---|---|"]
    for row in rows:
        here = f"**{row.state}**: {row.why}" if row.why else str(row.state)
        tests = "<br>".join(f"`{test}`" for test in row.tests) or f"*{NO_TEST}*"
        lines.append(_line([row.what, here, tests]))
    return "\n".join(lines) + "\n"


def _line(cells: list[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"
