"""`platform inspect` of runs and checkpoints: its text, its JSON, its errors."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys

import pytest
from unit.trainer.checkpoint.written_checkpoint import OPTIMIZER, TOTALS, write

from hotrow.cli.main import main
from hotrow.line_layout import LineLayout
from hotrow.trainer.checkpoint import part_rows

CONFIG = """\
name: small
data: {format: criteo, train: /none}
features: {sparse: {columns: [C1, C2], dim: 2}}
model: {arch: logistic}
"""


def rows():
    """100 rows: key 0 has 901 lookups, nine have 10, the others 1, one of them none."""
    counts = [901] + [10] * 9 + [1] * 89 + [0]
    return [
        (key, [3.0, 4.0 if key < 50 else 0.0, 1.0, 1.0], 64 - key % 4, count)
        for key, count in enumerate(counts)
    ]


@pytest.fixture
def run(tmp_path):
    """A run of two checkpoints: a full one, and an increment that changes one row."""
    path = tmp_path / "run"
    path.mkdir()
    (path / "config.yaml").write_text(CONFIG)
    write(path / "checkpoints", 64, {"C1": rows(), "C2": []}, rows_a_file=40)
    write(
        path / "checkpoints",
        66,
        {"C1": [(5, [3.0, 4.0, 1.0, 1.0], 66, 10), (700, [0.0, 0.0, 1.0, 1.0], 65, 1)], "C2": []},
        {"C1": [99]},
        [64],
        sizes={"C1": 100},
    )
    return path


@pytest.fixture
def inspect(capsys, monkeypatch):
    """Runs the command; returns standard output, or the one line of its error."""
    monkeypatch.setenv("COLUMNS", "70")

    def call(*arguments, code=0):
        capsys.readouterr()
        assert main(["inspect", *map(str, arguments)]) == code
        printed = capsys.readouterr()
        if code:
            assert printed.out == ""
            (line,) = printed.err.splitlines()
            return line.removeprefix("Error: ")
        assert printed.err == ""
        return printed.out

    return call


def test_a_run_shows_its_tables_in_a_few_lines(run, inspect):
    assert inspect(run) == (
        f"run {run}\n"
        "  name: small\n"
        "  model: logistic\n"
        "  step: 66\n"
        "  epoch: 0\n"
        "  batch: 66\n"
        "  checkpoint: step-00000066\n"
        "  checkpoint kind: increment\n"
        "  parents: step-00000064\n"
        "  checkpoints: 2\n"
        "  damaged checkpoints: none\n"
        "\n"
        "table  rows  dim    bytes  on disk  a row  weights      state  lookups  top 1%  top 10%\n"
        "C1      100    2  1.6 KiB  4.9 KiB   16 B  float32  D float32    1,081   83.3%    91.7%\n"
        "C2        0    2      0 B     10 B   16 B  float32  D float32        0\n"
        "all     100       1.6 KiB  4.9 KiB                               1,081\n"
    )


def test_a_table_is_drawn_in_blocks(run, inspect):
    text = inspect(run, "--table", "C1")
    assert "\nC2 " not in text
    assert text.split("table C1\n")[1].splitlines() == [
        "  rows: 100 at step 66",
        "  optimizer: Adagrad",
        "  never updated: 0 (0.0%)",
        "  not finite: 0",
        "  since the run began: 5 keys admitted, 4 occurrences refused, 3 keys waiting, 2 rows "
        "expired, 1 tombstones",
        "",
        "  lookups of a row",
        "             1  ██████████████████████████████████████████  90   90.0%",
        "        2 .. 3                                               0    0.0%",
        "        4 .. 7                                               0    0.0%",
        "       8 .. 15  ████▎                                        9    9.0%",
        "      16 .. 31                                               0    0.0%",
        "      32 .. 63                                               0    0.0%",
        "     64 .. 127                                               0    0.0%",
        "    128 .. 255                                               0    0.0%",
        "    256 .. 511                                               0    0.0%",
        "  512 .. 1,023  ▌                                            1    1.0%",
        "",
        "  ages: steps since a row's last update (mean 3.4)",
        "       0  █                                                  1    1.0%",
        "       1  █                                                  1    1.0%",
        "  2 .. 3  ████████████████████████████████████████████████  49   49.0%",
        "  4 .. 7  ████████████████████████████████████████████████  49   49.0%",
        "",
        "  L2 norms of the weights (least 0, mean 3.97, greatest 5)",
        "             0  ▉                                            1    1.0%",
        "  2.83 .. 3.08  █████████████████████████████████████████▏  49   49.0%",
        "  3.08 .. 3.36                                               0    0.0%",
        "  3.36 .. 3.67                                               0    0.0%",
        "     3.67 .. 4                                               0    0.0%",
        "     4 .. 4.36                                               0    0.0%",
        "  4.36 .. 4.76                                               0    0.0%",
        "  4.76 .. 5.19  ██████████████████████████████████████████  50   50.0%",
    ]


def test_a_terminal_that_is_not_utf8_gets_ascii(run):
    command = [sys.executable, "-m", "hotrow.cli.main", "inspect", str(run), "--table", "C1"]
    environment = os.environ | {"PYTHONIOENCODING": "latin-1", "COLUMNS": "60"}
    done = subprocess.run(command, capture_output=True, check=True, env=environment)
    lines = done.stdout.decode("ascii").splitlines()
    assert "             1  ################################  90   90.0%" in lines
    assert "  512 .. 1,023  #                                  1    1.0%" in lines


def test_a_run_is_inspected_without_waiting_for_tensorflow(run):
    program = (
        "import sys; from hotrow.cli.main import main\n"
        f"main(['inspect', {str(run)!r}])\n"
        "print({'tensorflow', 'keras'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout.endswith("\nset()\n"), done.stderr


def test_a_table_without_rows_has_no_histograms(run, inspect):
    assert inspect(run, "--table", "C2").split("table C2\n")[1].splitlines()[1:-1] == [
        "  optimizer: Adagrad",
        "  never updated: 0",
        "  not finite: 0",
    ]


@pytest.mark.parametrize(
    ("layout", "text"),
    [
        (LineLayout(4), "none"),
        (LineLayout(4, vectors=1), "D float32"),
        (LineLayout(4, state_type="bfloat16", vectors=2, scalars=1), "2D bfloat16 + 1"),
        (LineLayout(4, scalars=1), "1 float32"),
    ],
    ids=["SGD", "Adagrad", "Adam", "row-wise Adagrad"],
)
def test_the_state_of_a_row_is_named_by_its_size_and_type(tmp_path, inspect, layout, text):
    line = [1.0] * (layout.line_bytes // 4)
    path = write(tmp_path, 1, {"C1": [(1, line, 1, 1)]}, layout=layout)
    (row,) = [line for line in inspect(path).splitlines() if line.startswith("C1 ")]
    assert re.search(rf" {layout.line_bytes} B +float32 +{re.escape(text)} +1 ", row)


def test_every_table_is_drawn_when_asked_for(run, inspect):
    text = inspect(run / "checkpoints" / "step-00000064", "--histograms")
    assert text.startswith(f"checkpoint {run}/checkpoints/step-00000064\n")
    assert re.findall(r"^table (\w+)$", text, re.MULTILINE) == ["C1", "C2"]
    assert max(len(line) for line in text.splitlines() if "█" in line) <= 70


def test_json_is_one_object_on_standard_output(run, inspect):
    values = json.loads(inspect(run, "--json", "-"))
    table, empty = values.pop("tables")
    assert values == {
        "kind": "run",
        "place": str(run),
        "name": "small",
        "model": "logistic",
        "step": 66,
        "epoch": 0,
        "batch": 66,
        "checkpoint": "step-00000066",
        "checkpoint_kind": "increment",
        "parents": ["step-00000064"],
        "checkpoints": 2,
        "damaged_checkpoints": [],
    }
    folders = [run / "checkpoints" / f"step-{step:08d}" / "tables" for step in (64, 66)]
    octaves = [0, 90, 0, 0, 9, 0, 0, 0, 0, 0, 1]
    assert table == {
        "name": "C1",
        "rows": 100,
        "dim": 2,
        "line_bytes": 16,
        "bytes": 1600,
        "digest": None,
        "step": 66,
        "weights_type": "float32",
        "state_type": "float32",
        "state_vectors": 1,
        "state_scalars": 0,
        "disk_bytes": sum(p.stat().st_size for folder in folders for p in folder.glob("C1*")),
        "optimizer": OPTIMIZER,
        "totals": TOTALS,
        "lookups": 1081,
        "skew": {"top_1_percent": 901 / 1081, "top_10_percent": 991 / 1081},
        "never_updated": 0,
        "not_finite": 0,
        "lookups_a_row": {
            "histogram": [
                {"low": 2**i // 2, "high": 2**i, "rows": rows} for i, rows in enumerate(octaves)
            ]
        },
        "age": {
            "mean": 3.43,
            "histogram": [
                {"low": low, "high": high, "rows": rows}
                for low, high, rows in [(0, 1, 1), (1, 2, 1), (2, 4, 49), (4, 8, 49)]
            ],
        },
        "norm": {
            "min": 0.0,
            "mean": 3.97,
            "max": 5.0,
            "histogram": [
                {"low": low, "high": high, "rows": rows}
                for low, high, rows in [
                    (0.0, 0.0, 1),
                    (2 ** (12 / 8), 2 ** (13 / 8), 49),
                    (2 ** (18 / 8), 2 ** (19 / 8), 50),
                ]
            ],
        },
    }
    assert empty["rows"] == 0
    assert empty["skew"] == {"top_1_percent": None, "top_10_percent": None}
    assert empty.keys() == table.keys()


def test_json_goes_to_a_file_beside_the_text(run, inspect, tmp_path):
    text = inspect(run, "--json", tmp_path / "a.json")
    assert text.startswith("run ")
    written = json.loads((tmp_path / "a.json").read_text())
    assert written == json.loads(inspect(run, "--json", "-"))


def test_a_row_that_is_not_finite_is_a_warning(run, capsys):
    rows = [(1, [1.0, float("nan"), 0.0, 0.0], 1, 1), (2, [1.0, 1.0, 0.0, float("inf")], 1, 1)]
    rows += [(3, [1.0, 1.0, 1.0, 1.0], 1, 1)]
    write(run / "checkpoints", 70, {"C1": rows})
    assert main(["inspect", str(run), "--json", "-"]) == 0
    printed = capsys.readouterr()
    assert json.loads(printed.out)["tables"][0]["not_finite"] == 2
    assert printed.err.startswith("Warning: 2 of 3 rows of table 'C1' hold a NaN or an infinity;")


def test_a_damaged_checkpoint_gives_way_to_the_one_before(run, inspect):
    (run / "checkpoints/step-00000066/tables/C1.state").write_bytes(b"stat3")
    text = inspect(run)
    assert "  checkpoint: step-00000064\n" in text
    assert "  damaged checkpoints: 66\n" in text
    values = json.loads(inspect(run, "--json", "-"))
    assert values["damaged_checkpoints"] == [66]


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        ("tables/C1.state", "{run}/checkpoints/step-00000064/tables/C1.state is damaged"),
        ("manifest.json", "{run}/checkpoints/step-00000064/manifest.json is missing"),
    ],
    ids=["a file", "the manifest"],
)
def test_a_damaged_base_is_named(run, inspect, damage, said):
    path = run / "checkpoints/step-00000064"
    if damage == "manifest.json":
        (path / damage).unlink()
    else:
        (path / damage).write_bytes(b"stat3")
    for step in (64, 66):
        line = inspect(run / f"checkpoints/step-{step:08d}", code=1)
        below = "step-00000066 builds on step-00000064: " if step == 66 else ""
        assert line.startswith(below + said.format(run=run))
    assert inspect(run, code=1) == f"{run}: all 2 checkpoints are damaged"


def test_a_checkpoint_that_is_removed_while_it_is_read_gives_way_to_a_newer_one(
    run, inspect, monkeypatch
):
    read = part_rows.read_rows

    def read_and_remove(path, line_bytes):
        """The run goes on just then: it writes one and removes those before."""
        monkeypatch.undo()
        write(run / "checkpoints", 80, {"C1": rows()})
        for step in (64, 66):
            shutil.rmtree(run / f"checkpoints/step-{step:08d}")
        return read(path, line_bytes)

    monkeypatch.setattr(part_rows, "read_rows", read_and_remove)
    assert "  checkpoint: step-00000080\n" in inspect(run)


def test_one_checkpoint_that_is_removed_while_it_is_read_is_reported(run, inspect, monkeypatch):
    path = run / "checkpoints/step-00000064"
    read = part_rows.read_rows

    def read_and_remove(file, line_bytes):
        shutil.rmtree(path, ignore_errors=True)
        return read(file, line_bytes)

    monkeypatch.setattr(part_rows, "read_rows", read_and_remove)
    assert inspect(path, code=1) == (
        f"the run went on and removed {path} while it was read; try again"
    )


def test_a_run_without_a_checkpoint_is_reported(run, inspect):
    shutil.rmtree(run / "checkpoints")
    assert inspect(run, code=1) == f"{run} has no checkpoint yet; train it first"


def test_a_checkpoint_may_be_inspected_wherever_it_was_copied_to(run, inspect, tmp_path):
    shutil.copytree(run / "checkpoints/step-00000064", tmp_path / "saved")
    assert "  step: 64\n" in inspect(tmp_path / "saved")


@pytest.mark.parametrize(
    ("arguments", "code", "line"),
    [
        (["--table", "C3"], 2, "--table 'C3': the checkpoint has C1, C2"),
        (["--table", "C1,"], 2, "--table 'C1,': the checkpoint has C1, C2 (did you mean 'C1'?)"),
    ],
    ids=["unknown table", "mistyped table"],
)
def test_wrong_use_is_one_line(run, inspect, arguments, code, line):
    assert inspect(run, *arguments, code=code) == line


def test_histograms_are_those_of_runs_and_checkpoints_only(tmp_path, inspect):
    assert inspect(tmp_path, "--histograms", code=2) == (
        f"{tmp_path} is no run and no checkpoint; leave out --table and --histograms"
    )
