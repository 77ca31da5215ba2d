"""Bad input as a user gives it: one line on standard error that says what to do, and a code.

Each kind is tried through the real command or a real server. Cases with a test of their own
elsewhere are not repeated: `platform train`'s options in test_train_command.py, files that must be
rejected in unit/data/test_malformed.py, a port in use in serving/test_process.py, the whole table
of refused requests in serving/test_request_errors.py and serving/test_rest_errors.py.
"""

from __future__ import annotations

import gzip
import json
import shutil
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest
import tensorflow as tf
from free_ports import free_port
from tensorflow_serving.apis import predict_pb2, prediction_service_pb2_grpc

from hotrow.cli.main import main

CONFIG = """\
name: small
data: {format: criteo, train: train.tsv, valid: train.valid.tsv, batch_size: 256}
features:
  dense:  {columns: [I1, I2], transform: log}
  sparse: {columns: [C1, C2], dim: 4, hash: true}
tables:   {default: {optimizer: adagrad}}
model:    {arch: dlrm, bottom: [8, 4], top: [8]}
optimizer: {name: adam}
"""
ONE_STEP = ["--set", "train.max_steps=1"]
INVALID = grpc.StatusCode.INVALID_ARGUMENT


def platform(*arguments: Any, cwd: Path) -> subprocess.CompletedProcess[str]:
    """Runs the command as a process of its own."""
    return subprocess.run(
        [sys.executable, "-m", "hotrow.cli.main", *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
        cwd=cwd,
        timeout=120,
    )


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with data, a configuration, a trained run `run` and its export `models/m/1`."""
    folder = tmp_path_factory.mktemp("work")
    rows = ["--rows", "1000", "--valid-rows", "100", "--keys", "100"]
    assert main(["data", "generate", str(folder / "train.tsv"), *rows]) == 0
    (folder / "small.yaml").write_text(CONFIG)
    assert main(["train", str(folder / "small.yaml"), "--run-dir", str(folder / "run")]) == 0
    export = ["--to", str(folder / "models"), "--name", "m"]
    assert main(["export", str(folder / "run"), *export]) == 0
    return folder


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


def one_error(text: str) -> str:
    """Returns the only line of standard error, without the `Error: ` that it begins with."""
    (line,) = text.splitlines()
    assert line.startswith("Error: "), line
    assert "Traceback" not in line
    return line.removeprefix("Error: ")


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
    """The training rows with three bad lines; the first is line 301."""
    lines = (work / "train.tsv").read_text().splitlines()
    lines[300] = lines[300].replace("\t", " ")
    lines[500] = "2" + lines[500][1:]
    lines[700] += "\tmore"
    path = tmp_path / "malformed.tsv"
    path.write_text("\n".join(lines) + "\n")
    return path


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
    (line,) = log
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


class Served:
    """A running server of `models/m`, with its two ports."""

    def __init__(self, port: int, rest_port: int) -> None:
        self.port, self.rest_port = port, rest_port

    def refusal(self, **inputs: Any) -> tuple[grpc.StatusCode, str]:
        """Returns the status of a Predict request that must be refused."""
        request = predict_pb2.PredictRequest()
        request.model_spec.name = "m"
        for name, value in inputs.items():
            request.inputs[name].CopyFrom(tf.make_tensor_proto(value))
        with grpc.insecure_channel(f"127.0.0.1:{self.port}") as channel:
            stub = prediction_service_pb2_grpc.PredictionServiceStub(channel)
            with pytest.raises(grpc.RpcError) as caught:
                stub.Predict(request, timeout=30)
        return caught.value.code(), caught.value.details()

    def rest_refusal(self, body: Any) -> tuple[int, str]:
        """Returns HTTP status and error of a REST predict request that must be refused."""
        url = f"http://127.0.0.1:{self.rest_port}/v1/models/m:predict"
        with pytest.raises(urllib.error.HTTPError) as caught:
            urllib.request.urlopen(url, json.dumps(body).encode(), timeout=30)
        with caught.value as reply:
            return reply.code, json.loads(reply.read())["error"]


@pytest.fixture(scope="module")
def served(work: Path) -> Iterator[Served]:
    port, rest_port = free_port(), free_port()
    process = subprocess.Popen(
        [
            *(sys.executable, "-m", "hotrow.cli.main", "serve", "--model_name=m"),
            *(f"--model_base_path={work}/models/m", f"--port={port}"),
            f"--rest_api_port={rest_port}",
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert process.stdout is not None
    try:
        assert process.stdout.readline().startswith("Serving m version 1: ")
        yield Served(port, rest_port)
        process.terminate()
        assert process.wait(60) == 0
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


GOOD: dict[str, Any] = {
    "I1": np.array([1], np.float32),
    "I2": np.array([2], np.float32),
    "C1": np.array([b"a"]),
    "C2": np.array([b"b"]),
}


def test_a_request_with_a_missing_input_lists_what_is_expected(served: Served) -> None:
    inputs = {name: value for name, value in GOOD.items() if name != "C2"}
    code, text = served.refusal(**inputs)
    assert code is INVALID
    assert "C2" in text
    assert "\n" not in text
    status, error = served.rest_refusal({"instances": [{"I1": 1.0, "I2": 2.0, "C1": "a"}]})
    assert status == 400
    assert error.endswith("keys must be equal to: C1,C2,I1,I2")


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        pytest.param(
            "I1", np.array([1], np.int64), "to be float but int64 is provided", id="an integer"
        ),
        pytest.param(
            "C1", np.array([1], np.int64), "to be string but int64 is provided", id="a raw key"
        ),
        pytest.param("I2", np.array([b"2"]), "to be float but string is provided", id="a text"),
    ],
)
def test_a_request_with_a_wrong_dtype_says_what_it_should_be(
    served: Served, name: str, value: Any, said: str
) -> None:
    code, text = served.refusal(**{**GOOD, name: value})
    assert code is INVALID
    assert text.endswith(said)


def test_a_rest_request_with_a_wrong_type_names_input_and_value(served: Served) -> None:
    row = {"I1": 1.0, "I2": 2.0, "C1": 5, "C2": "b"}
    assert served.rest_refusal({"instances": [row]}) == (
        400,
        "Failed to process element: 0 key: C1 of 'instances' list. Error: INVALID_ARGUMENT: "
        "JSON Value: 5 Type: Number is not of expected type: string",
    )


def test_predict_names_a_malformed_line_of_its_file(
    served: Served, refusal_of: RefusalOf, malformed: Path
) -> None:
    server = ["--server", f"127.0.0.1:{served.port}", "--model", "m"]
    line = refusal_of("predict", *server, "--data", malformed, code=1)
    assert line.startswith(f"{malformed}: line 301: 1 fields, not 40: ")
