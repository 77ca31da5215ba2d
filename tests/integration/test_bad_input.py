"""Bad input as a user gives it: one line on standard error that says what to do, and a code.

Each kind is tried through the real command or a real server. Cases with a test of their own
elsewhere are not repeated: `platform train`'s options in test_train_command.py, files that must be
rejected in unit/trainer/data/test_malformed.py, a port in use in serving/test_process.py, all
refused requests in serving/test_request_errors.py and serving/test_rest_errors.py.
"""

from __future__ import annotations

import gzip
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import grpc
import pytest
from free_ports import free_port
from integration.small_run import CONFIG, make_run, one_error, platform, write_malformed

from hotrow.cli.main import main

ONE_STEP = ["--set", "train.max_steps=1"]
INVALID = grpc.StatusCode.INVALID_ARGUMENT


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with data, a configuration, a trained run `run` and its export `models/m/1`."""
    return make_run(tmp_path_factory.mktemp("work"))


RefusalOf = Callable[..., str]


@pytest.fixture
def refusal_of(
    work: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> RefusalOf:
    """Runs a command in the folder; returns its one line, checks its code and that it is alone."""
    monkeypatch.chdir(work)

    def run(*arguments: Any, code: int) -> str:
        capsys.readouterr()
        assert main([str(argument) for argument in arguments]) == code
        printed = capsys.readouterr()
        assert printed.out == ""
        return one_error(printed.err)

    return run


# Missing and unreadable files.


@pytest.mark.parametrize(
    ("arguments", "code", "line"),
    [
        pytest.param(
            ["train", "none.yaml"],
            1,
            "no such configuration file: none.yaml; give a YAML file",
            id="no configuration",
        ),
        pytest.param(
            ["train", "run"],
            2,
            "cannot read configuration run: Is a directory",
            id="a folder for a configuration",
        ),
        pytest.param(
            ["train", "small.yaml", "--set", "data.train=run"],
            2,
            "data.train: not a file: {work}/run; give one data file",
            id="a folder for a data file",
        ),
        pytest.param(
            ["export", "none", "--to", "new", "--name", "m"],
            1,
            "no run in none: it has no config.yaml; give the directory of a run",
            id="export of no run",
        ),
        pytest.param(
            ["export", "none", "--to", "new", "--name", "ml wd"],
            2,
            "--name 'ml wd': legal are letters, digits, '.', '_' and '-', the first a letter or "
            "digit; it is a folder, and a part of the URLs of requests",
            id="export by a name with a blank",
        ),
        pytest.param(
            ["export", "run", "--to", "small.yaml", "--name", "m"],
            2,
            "Invalid value for '--to': Directory 'small.yaml' is a file "
            "(see 'platform export --help')",
            id="export into a file",
        ),
        pytest.param(
            ["inspect", "none"],
            1,
            "none is no run (config.yaml), no checkpoint (step-...), no version "
            "(assets/hotrow_manifest.json), no folder of versions or models and no store; give one "
            "of these, or a URL such as file:///DIR",
            id="inspect of nothing",
        ),
        pytest.param(
            ["inspect", "models/m/1", "--table", "C1"],
            2,
            "models/m/1 is no run and no checkpoint; leave out --table and --histograms",
            id="rows of a version",
        ),
        pytest.param(
            ["inspect", "run", "--table", "c1"],
            2,
            "--table 'c1': the checkpoint has C1, C2",
            id="a table that is not there",
        ),
        pytest.param(
            ["train", "small.yaml", "--run-dir", "small.yaml/run"],
            2,
            "cannot make run directory small.yaml/run: Not a directory; choose another --run-dir",
            id="a run below a file",
        ),
    ],
)
def test_a_file_that_is_not_there_is_named(
    refusal_of: RefusalOf, work: Path, arguments: list[str], code: int, line: str
) -> None:
    before = sorted(path.name for path in work.iterdir())
    assert refusal_of(*arguments, code=code) == line.format(work=work)
    assert sorted(path.name for path in work.iterdir()) == before


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        pytest.param(
            "empty.tsv",
            b"",
            "{path} is empty; a data file has at least one line",
            id="an empty file",
        ),
        pytest.param(
            "cut.tsv.gz",
            gzip.compress(b"0" + b"\t1" * 39 + b"\n" + bytes(range(256)) * 50)[:400],
            "{path} cannot be read: Truncated compressed stream; is it cut off or damaged?",
            id="a gzip file that was cut",
        ),
        pytest.param(
            "plain.tsv.gz",
            b"0" + b"\t1" * 39 + b"\n",
            "{path} is named .gz but is not gzip data; rename it",
            id="a plain file named .gz",
        ),
        pytest.param(
            "noise.parquet",
            b"PAR1" + bytes(100),
            "{path} cannot be read as Parquet: ",
            id="no Parquet file",
        ),
    ],
)
def test_a_data_file_that_cannot_be_read_is_named(
    refusal_of: RefusalOf, tmp_path: Path, name: str, content: bytes, said: str
) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    run = tmp_path / "run"
    arguments = ["train", "small.yaml", "--set", f"data.train={path}", "--run-dir", run]
    assert refusal_of(*arguments, code=1).startswith(said.format(path=path))


def test_a_run_that_was_never_trained_says_how_to_train_it(
    refusal_of: RefusalOf, work: Path, tmp_path: Path
) -> None:
    run = tmp_path / "untrained"
    run.mkdir()
    shutil.copy(work / "run" / "config.yaml", run)
    assert refusal_of("export", run, "--to", tmp_path / "models", "--name", "m", code=1) == (
        f"{run} has no checkpoint yet; train it first (platform train ... --run-dir {run})"
    )
    assert not (tmp_path / "models").exists()


# Malformed lines.


@pytest.fixture
def malformed(work: Path, tmp_path: Path) -> Path:
    return write_malformed(work, tmp_path)


def test_a_malformed_line_fails_the_run_with_its_number(work: Path, malformed: Path) -> None:
    run = malformed.parent / "run"
    data = ["--set", f"data.train={malformed}"]
    result = platform("train", "small.yaml", *data, "--run-dir", run, cwd=work)
    assert result.returncode == 1
    line = one_error(result.stderr)
    assert line.startswith(f"{malformed}: line 301: 1 fields, not 40: '")
    assert line.endswith("(on_malformed: skip leaves such lines out and counts them)")


def test_malformed_lines_are_skipped_counted_and_reported(work: Path, malformed: Path) -> None:
    run = malformed.parent / "run"
    data = ["--set", f"data.train={malformed}", "--set", "data.on_malformed=skip"]
    report = ["--json", run.with_suffix(".json")]
    result = platform("train", "small.yaml", *data, "--run-dir", run, *report, cwd=work)
    assert result.returncode == 0, result.stderr
    (line,) = [line for line in result.stderr.splitlines() if "malformed" in line]
    assert "3 malformed lines" in line
    assert "the first is line 301: 1 fields, not 40: " in line
    # 997 rows are left, in batches of 256.
    assert json.loads(run.with_suffix(".json").read_text())["steps"] == 4


def test_a_policy_that_is_none_is_refused_with_the_legal_ones(refusal_of: RefusalOf) -> None:
    line = refusal_of("train", "small.yaml", "--set", "data.on_malformed=ignore", code=2)
    assert line == (
        "small.yaml: data.on_malformed: 'ignore' is not legal; expected one of fail, skip"
    )


# Configurations; the command's `--set` with the same mistakes is in test_train_command.py.


@pytest.mark.parametrize(
    ("right", "wrong", "said"),
    [
        pytest.param(
            "optimizer: {name",
            "optimiser: {name",
            "unknown key 'optimiser' (did you mean 'optimizer'?); legal: name, seed, data, ",
            id="an unknown section",
        ),
        pytest.param(
            "batch_size: 256",
            "batchsize: 256",
            "data: unknown key 'batchsize' (did you mean 'batch_size'?); legal: format, train, ",
            id="an unknown key",
        ),
        pytest.param(
            "batch_size: 256",
            "batch_size: '256'",
            "data.batch_size: '256' is not legal; expected an integer",
            id="a text for an integer",
        ),
        pytest.param(
            "columns: [C1, C2]",
            "columns: C1",
            "features.sparse.columns: 'C1' is not legal; expected a list",
            id="a text for a list",
        ),
        pytest.param(
            "name: adam",
            "name: adma",
            "optimizer.name: 'adma' is not legal (did you mean 'adam'?); expected one of adam, ",
            id="an unknown optimizer of the dense part",
        ),
        pytest.param(
            "optimizer: adagrad",
            "optimizer: adgrad",
            "tables.default.optimizer: 'adgrad' is not legal (did you mean 'adagrad'?)",
            id="an unknown optimizer of a table",
        ),
        pytest.param(
            "arch: dlrm",
            "arch: transformer",
            "model: arch 'transformer' is not legal; expected one of dlrm, wide_deep, logistic",
            id="an unknown model",
        ),
        pytest.param(
            "dim: 4",
            "dim: 0",
            "features.sparse.dim: 0 is not legal; expected at least 1",
            id="dim 0",
        ),
    ],
)
def test_a_mistake_in_the_file_is_named_with_its_path_and_what_is_legal(
    refusal_of: RefusalOf, work: Path, tmp_path: Path, right: str, wrong: str, said: str
) -> None:
    assert CONFIG.count(right) == 1
    path = tmp_path / "wrong.yaml"
    path.write_text(CONFIG.replace(right, wrong))
    before = sorted(work.iterdir())
    assert refusal_of("train", path, code=2).startswith(f"{path}: {said}")
    assert sorted(work.iterdir()) == before


# Stores and versions.


@pytest.mark.parametrize(
    ("store", "line"),
    [
        pytest.param(
            "file://{work}/none",
            "store {work}/none cannot be opened: No such file or directory",
            id="nothing is there",
        ),
        pytest.param(
            "file://{work}/small.yaml",
            "store {work}/small.yaml holds no LMDB data (data.mdb)",
            id="a file",
        ),
        pytest.param(
            "file://{work}/run", "store {work}/run holds no LMDB data (data.mdb)", id="a run"
        ),
    ],
)
def test_a_store_that_cannot_be_opened_is_named(
    refusal_of: RefusalOf, work: Path, store: str, line: str
) -> None:
    assert refusal_of("inspect", store.format(work=work), code=1) == line.format(work=work)


def test_an_export_whose_store_cannot_be_made_leaves_nothing(
    refusal_of: RefusalOf, work: Path
) -> None:
    export = ["export", "run", "--to", "models", "--name", "m"]
    line = refusal_of(*export, "--store", f"file://{work}/small.yaml/rows", code=1)
    assert line == f"store {work}/small.yaml/rows cannot be made: Not a directory"
    line = refusal_of(*export, "--store", "rows", code=2)
    assert line.startswith("--store 'rows': no URL of a store; legal: file:///DIR, redis://HOST")
    assert [path.name for path in (work / "models" / "m").iterdir()] == ["1"]


@pytest.mark.parametrize("where", ["the version's own", "named by --store"])
def test_a_server_without_its_store_ends_and_names_it(
    work: Path, tmp_path: Path, where: str
) -> None:
    base = tmp_path / "m"
    shutil.copytree(work / "models" / "m", base)
    options, store = ["--store", f"file://{tmp_path}/none"], f"{tmp_path}/none"
    if where != "named by --store":
        shutil.rmtree(base / "1" / "rows")
        options, store = [], f"{base}/1/rows"
    result = platform(
        *("serve", "--model_name=m", f"--model_base_path={base}", f"--port={free_port()}"),
        *("--max_num_load_retries=0", *options),
        cwd=tmp_path,
    )
    assert result.returncode == 255
    assert "Traceback" not in result.stderr
    *log, last = result.stderr.splitlines()
    code, reason = "NOT_FOUND", f"store {store} cannot be opened: No such file or directory"
    if not options:
        code, reason = "DATA_LOSS", f"{store}/data.mdb cannot be read: No such file or directory"
    assert last == (
        "Failed to start server. Error: 1 model(s) did not become available: "
        f"{{{{{{name: m version: 1}} due to error: {code}: {reason}}}, }}"
    )
    # Tests beside this one kill servers.
    (line,) = [line for line in log if "which a server that was killed left" not in line]
    named = reason if f"{base}/1" in reason else f"{base}/1: {reason}"
    assert line.endswith(f"] m: version 1 failed to load (attempt 1 of 1, gave up): {named}")


def test_a_store_that_was_cut_is_an_error_and_not_the_end_of_the_process(
    work: Path, tmp_path: Path
) -> None:
    """LMDB reads its file as memory: pages that are not there would be a bus error."""
    shutil.copytree(work / "models" / "m" / "1" / "rows", tmp_path / "rows")
    data = tmp_path / "rows" / "data.mdb"
    with data.open("r+b") as file:
        file.truncate(2 * 4096)  # its two first pages, which say how many there are
    result = platform("inspect", f"file://{tmp_path}/rows", cwd=tmp_path)
    assert result.returncode == 1, result
    assert f"store {tmp_path}/rows" in one_error(result.stderr)


def test_an_export_never_rewrites_a_version(work: Path) -> None:
    version = work / "models" / "m" / "1"
    before = {path: path.read_bytes() for path in version.rglob("*") if path.is_file()}
    export = ["export", "run", "--to", "models", "--name", "m", "--version", "1"]
    result = platform(*export, cwd=work)
    assert result.returncode == 1
    assert result.stdout == ""
    assert one_error(result.stderr) == (
        "models/m/1 exists already; versions are never rewritten: leave --version out for 2, or "
        "remove it"
    )
    assert {path: path.read_bytes() for path in version.rglob("*") if path.is_file()} == before
    assert [path.name for path in version.parent.iterdir()] == ["1"]


# Requests to a server of our own export.
