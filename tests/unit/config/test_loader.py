"""Reading YAML files, overrides and paths."""

from __future__ import annotations

import pytest

from hotrow.config import load_config
from hotrow.errors import HotrowError, InvalidArgumentError, NotFoundError

MINIMAL = """
data: {format: criteo, train: a.tsv, valid: /b.tsv}
features: {sparse: {columns: [C1], dim: 4}}
model: {arch: logistic}
"""


@pytest.fixture
def path(tmp_path):
    file = tmp_path / "my run.yaml"
    file.write_text(MINIMAL)
    return file


def test_a_missing_name_is_that_of_the_file(path):
    assert load_config(path).name == "my-run"


def test_paths_in_the_file_are_relative_to_it_and_overrides_to_the_working_directory(
    path, tmp_path, monkeypatch
):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    assert load_config(path).data.train == str(tmp_path / "a.tsv")
    assert load_config(path).data.valid == "/b.tsv"
    assert load_config(path, ["data.train=c.tsv"]).data.train == str(elsewhere / "c.tsv")


def test_overrides_are_yaml_and_the_last_one_wins(path):
    config = load_config(
        path,
        [
            "train.epochs=2",
            "train.epochs=3",
            "optimizer.learning_rate=1e-3",
            "model={arch: wide_deep, hidden: [8, 4]}",
            "data.valid=",
            "tables.C1.initializer=zeros",
        ],
    )
    assert config.train.epochs == 3
    assert config.optimizer.learning_rate == 0.001
    assert config.model.hidden == (8, 4)
    assert config.data.valid is None
    assert config.table_settings("C1").initializer.constant == 0


def test_an_override_reaches_into_a_list_by_number(path):
    path.write_text(MINIMAL.replace("{columns: [C1], dim: 4}", "[{columns: [C1], dim: 4}]"))
    config = load_config(path, ["features.sparse.0.dim=6", "features.sparse.0.columns.0=C5"])
    assert [(c.name, c.dim) for c in config.features.sparse_columns()] == [("C5", 6)]


@pytest.mark.parametrize(
    ("override", "line"),
    [
        ("train.epochs", "--set train.epochs: expected a.b=value"),
        ("=3", "expected a.b=value"),
        ("train..epochs=3", "expected a.b=value"),
        ("train.epochs=[1", "the value '[1' is not YAML"),
        ("model.arch.x=1", "model.arch is 'logistic', not a section"),
        ("features.sparse.columns.9=C2", "features.sparse.columns is a list of 1; '9' is not"),
        ("train.epoch=3", "train: unknown key 'epoch' (did you mean 'epochs'?)"),
    ],
)
def test_an_override_that_cannot_be_applied_is_refused(path, override, line):
    with pytest.raises(InvalidArgumentError) as refused:
        load_config(path, [override])
    assert line in str(refused.value)


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("", "expected sections (data:, features:, model:, ...), found nothing"),
        ("- 1", "found list"),
        ("a: [1", "not valid YAML: line 1"),
        ("seed: 1\nseed: 2\n", "line 2, column 1: key 'seed' appears twice"),
        ("seed: !!python/object:os.system {}", "not valid YAML"),
    ],
)
def test_a_file_that_is_no_configuration_is_refused_in_one_line(path, text, line):
    path.write_text(text)
    with pytest.raises(InvalidArgumentError) as refused:
        load_config(path)
    assert line in str(refused.value)
    assert str(path) in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_file_that_is_not_text_is_refused(path):
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InvalidArgumentError, match="not UTF-8"):
        load_config(path)


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(NotFoundError, match=r"no such configuration file: .*none.yaml"):
        load_config(tmp_path / "none.yaml")


def test_a_directory_instead_of_a_file_is_refused(tmp_path):
    with pytest.raises(InvalidArgumentError, match="Is a directory"):
        load_config(tmp_path)


def test_missing_data_files_are_named_with_their_key(path, tmp_path):
    with pytest.raises(NotFoundError, match=r"data.train: no such file: .*a.tsv"):
        load_config(path).data.require_files()
    (tmp_path / "a.tsv").mkdir()
    with pytest.raises(HotrowError, match=r"data.train: not a file"):
        load_config(path).data.require_files()


def test_lists_of_files_are_resolved_and_looked_for_one_by_one(tmp_path):
    for name in ("a.tsv", "b.tsv"):
        (tmp_path / name).write_text("")
    path = tmp_path / "c.yaml"
    path.write_text(
        "data: {format: criteo, train: [a.tsv, b.tsv], valid: [a.tsv]}\n"
        "features: {sparse: {columns: [C1], dim: 2}}\nmodel: {arch: logistic}\n"
    )
    config = load_config(path)
    assert config.data.train == (str(tmp_path / "a.tsv"), str(tmp_path / "b.tsv"))
    assert config.data.valid == (str(tmp_path / "a.tsv"),)
    config.data.require_files()
    (tmp_path / "b.tsv").unlink()
    with pytest.raises(NotFoundError, match=r"data.train: no such file: .*b.tsv"):
        config.data.require_files()


@pytest.mark.parametrize("value", ["[]", "[a.tsv, 3]", "[a.tsv, '']", "''"])
def test_lists_without_paths_are_refused(tmp_path, value):
    path = tmp_path / "c.yaml"
    path.write_text(
        f"data: {{format: criteo, train: {value}}}\n"
        "features: {sparse: {columns: [C1], dim: 2}}\nmodel: {arch: logistic}\n"
    )
    with pytest.raises(InvalidArgumentError, match=r"data.train: .* a text, or a list of texts"):
        load_config(path)
