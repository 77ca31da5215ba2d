"""The schema: what validates, what is refused and with which line."""

from __future__ import annotations

import copy

import pytest
from pydantic import ValidationError
from unit.config.config_values import EXAMPLE, example, merged

from hotrow.config import (
    MISSING_BUCKET,
    RunConfig,
    load_config,
    parse_config,
)
from hotrow.errors import InvalidArgumentError


@pytest.fixture
def raw():
    return example()


def test_the_example_validates(tmp_path):
    (tmp_path / "c.yaml").write_text(EXAMPLE)
    config = load_config(tmp_path / "c.yaml")
    assert config.cache.rows == 1_000_000
    assert config.model.bottom == (128, 64, 16)
    assert config.data.train == str(tmp_path / "train.tsv.gz")
    assert config.table_settings("C1").learning_rate == 0.05


def test_the_resolved_configuration_loads_again_as_the_same(tmp_path, raw):
    raw["features"]["sparse"] = [
        {"columns": ["C1"], "dim": 16, "combiner": "none"},
        {"columns": ["C2", "C3"], "dim": 16, "table": "shared", "separator": "|"},
        {"columns": ["I1"], "dim": 16, "buckets": [1, 2.5]},
    ]
    raw["tables"]["shared"] = {"optimizer": "sgd", "initializer": "zeros"}
    config = parse_config(raw)
    (tmp_path / "c.yaml").write_text(config.to_yaml())
    again = load_config(tmp_path / "c.yaml")
    assert again.model_dump(exclude={"data"}) == config.model_dump(exclude={"data"})


@pytest.mark.parametrize(
    ("path", "value", "line"),
    [
        ("nme", 1, "unknown key 'nme' (did you mean 'name'?); legal: name, seed, data"),
        ("data.batchsize", 1, "data: unknown key 'batchsize' (did you mean 'batch_size'?)"),
        ("model.botom", [16], "model: unknown key 'botom' (did you mean 'bottom'?)"),
        ("features.sparse.size", 3, "features.sparse: unknown key 'size'"),
        ("tables.default.lr", 3, "tables.default: unknown key 'lr'"),
        ("data.batch_size", "3", "data.batch_size: '3' is not legal; expected an integer"),
        ("data.batch_size", 0, "data.batch_size: 0 is not legal; expected at least 1"),
        ("data.train", 3, "data.train: 3 is not legal; expected a text"),
        ("data.positive", True, 'YAML reads yes, on and true as a boolean: quote it, as in "yes"'),
        ("data.label", False, 'as a boolean: quote it, as in "no"'),
        ("data.positive", 1, "positive: 1 is not legal; expected a text, not a number: quote it"),
        ("data.format", "xyz", "data.format: 'xyz' is not legal; expected one of criteo, csv"),
        ("train", 7, "train: 7 is not legal; expected a section"),
        ("train.shuffle", 1, "train.shuffle: 1 is not legal; expected true or false"),
        ("train.epochs", True, "train.epochs: True is not legal; expected an integer"),
        ("seed", -1, "seed: -1 is not legal; expected at least 0"),
        ("name", "a/b", "name: 'a/b' is not legal; expected letters, digits"),
        ("features.sparse.dim", 0, "features.sparse.dim: 0 is not legal; expected at least 1"),
        ("features.sparse.columns", "C1", "features.sparse.columns: 'C1' is not legal"),
        ("features.sparse.columns", [], "features.sparse.columns: [] is not legal"),
        ("features.sparse.combiner", "avg", "expected one of sum, mean, sqrtn"),
        ("features.dense.transform", "lg", "features.dense.transform: 'lg' is not legal (did you"),
        ("model.arch", "dlmr", "model: arch 'dlmr' is not legal (did you mean 'dlrm'?)"),
        ("model.top", [0], "model.top.0: 0 is not legal"),
        ("model.dropout", 1, "model.dropout: 1 is not legal; expected less than 1"),
        ("tables.default.optimizer", "adagrd", "'adagrd' is not legal (did you mean 'adagrad'?)"),
        ("tables.default.learning_rate", 0, "expected more than 0"),
        ("tables.default.initializer", "ones", "'ones' is not legal; expected zeros, {uniform"),
        ("tables.default.initializer", {"uniform": 1, "normal": 1}, "2 ways are given"),
        ("tables.C9", {}, "tables: unknown table 'C9'"),
        ("tables", 5, "tables: 5 is not legal; expected a section"),
        ("optimizer.name", "Adam", "optimizer.name: 'Adam' is not legal (did you mean 'adam'?)"),
        ("optimizer.learning_rate", float("inf"), "inf is not legal; expected a finite number"),
        ("cache.policy", "fifo", "cache.policy: 'fifo' is not legal; expected one of lfu, lru"),
        ("cache.rows", 0, "cache.rows: 0 is not legal; expected at least 1"),
        ("cache.bytes", 1.5, "cache.bytes: 1.5 is not legal; expected an integer"),
        ("cache.ratio", 0, "cache.ratio: 0 is not legal; expected more than 0"),
        ("cache.ratio", 1.5, "cache.ratio: 1.5 is not legal; expected at most 1"),
        ("cache.prefetch", -1, "cache.prefetch: -1 is not legal; expected at least 0"),
        ("cache.prefetch", 1025, "cache.prefetch: 1025 is not legal; expected at most 1024"),
        ("cache.warmup", 1.1, "cache.warmup: 1.1 is not legal; expected at most 1"),
        ("cache.warmup_batches", 0, "cache.warmup_batches: 0 is not legal; expected at least 1"),
        (
            "cache",
            {"rows": 5, "ratio": 0.1},
            "cache: Cache(rows, bytes, ratio) is (5, None, 0.1); must be exact",
        ),
        (
            "cache.ratio",
            0.1,
            "cache.ratio: 0.1 is a share of a table's vocabulary_size, and table 'C1' has "
            "none; set it under tables, or give cache.rows or cache.bytes",
        ),
        ("parallel.sharding", "rows", "'rows' is not legal (did you mean 'row'?)"),
        ("parallel.timeout_seconds", 0, "parallel.timeout_seconds: 0 is not legal; expected more"),
        ("tables.C1.sharding", "exchange", "tables.C1.sharding: 'exchange' is not legal; expected"),
    ],
)
def test_a_value_that_is_not_legal_is_named_with_its_path(raw, path, value, line):
    with pytest.raises(InvalidArgumentError) as refused:
        parse_config(merged(raw, path, value))
    assert line in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("section", ["data", "features", "model"])
def test_a_missing_section_is_named(raw, section):
    del raw[section]
    with pytest.raises(InvalidArgumentError, match=f"{section}: missing; this key is required"):
        parse_config(raw)


def test_a_model_without_an_architecture_is_refused_with_the_legal_ones(raw):
    del raw["model"]["arch"]
    with pytest.raises(InvalidArgumentError, match="arch is missing; expected one of dlrm, wide"):
        parse_config(raw)


def test_several_problems_are_counted_behind_the_first(raw):
    raw["seed"], raw["data"]["batch_size"] = "x", "y"
    with pytest.raises(InvalidArgumentError, match=r"\(and 1 more\)$"):
        parse_config(raw)


@pytest.mark.parametrize(
    ("features", "line"),
    [
        ({}, "no columns; name the file's columns"),
        ({"dense": {"columns": ["I1", "I1"]}}, "column 'I1' is named twice under dense"),
        (
            {"sparse": [{"columns": ["C1"], "dim": 2}, {"columns": ["C1"], "dim": 2}]},
            "column 'C1' is named twice under sparse",
        ),
        (
            {"dense": {"columns": ["I1"]}, "sparse": {"columns": ["I1"], "dim": 2}},
            "column 'I1' is both dense and sparse",
        ),
        (
            {
                "sparse": [
                    {"columns": ["C1"], "dim": 2, "table": "t"},
                    {"columns": ["C2"], "dim": 4, "table": "t"},
                ]
            },
            "table 't' has dim 2 for column 'C1' and 4 for 'C2'",
        ),
        ({"sparse": {"columns": ["C27"], "dim": 2}}, "no column 'C27' in the data (did you mean"),
        ({"dense": {"columns": ["C1"]}}, "column 'C1' holds texts"),
        ({"sparse": {"columns": ["label"], "dim": 2}}, "column 'label' is the label"),
        ({"sparse": {"columns": ["C1"], "dim": 2, "table": "wide"}}, "table name 'wide' is taken"),
        ({"sparse": {"columns": ["a/wide"], "dim": 2, "table": "b"}}, "rename it in the file"),
        (
            {"sparse": {"columns": ["C1"], "dim": 2, "separator": "|", "combiner": "none"}},
            "combiner 'none' needs exactly one key",
        ),
        (
            {"sparse": {"columns": ["I1"], "dim": 2, "buckets": [2, 1]}},
            "expected 'log' or a list of increasing numbers",
        ),
        (
            {"sparse": {"columns": ["I1"], "dim": 2, "buckets": [1], "separator": "|"}},
            "buckets are for single numbers",
        ),
    ],
)
def test_columns_that_do_not_fit_together_are_refused(raw, features, line):
    with pytest.raises(InvalidArgumentError) as refused:
        parse_config(raw | {"features": features, "model": {"arch": "wide_deep"}})
    assert line in str(refused.value)


def test_one_group_and_a_list_of_one_group_are_the_same(raw):
    several = copy.deepcopy(raw)
    several["features"]["sparse"] = [several["features"]["sparse"]]
    assert parse_config(raw) == parse_config(several)


def test_sparse_columns_know_their_table_and_key_prefix(raw):
    raw["features"]["sparse"] = [
        {"columns": ["C1"], "dim": 16},
        {"columns": ["C2", "C3"], "dim": 16, "table": "both"},
        {"columns": ["I2"], "dim": 16, "buckets": "log"},
    ]
    first, second, third, bucketized = parse_config(raw).features.sparse_columns()
    assert (first.table, first.key_prefix) == ("C1", b"C1\x1f")
    assert (second.table, third.table) == ("both", "both")
    assert second.key_prefix == third.key_prefix == b"both\x1f"
    assert bucketized.hash is False
    assert bucketized.boundaries is not None
    assert bucketized.boundaries[:3] == (0.0, 1.0, 2.0)
    assert list(bucketized.boundaries) == sorted(set(bucketized.boundaries))
    assert MISSING_BUCKET < 0


def test_columns_named_like_keys_of_the_section_tables_have_tables_of_their_own(raw):
    raw["data"] = {"format": "csv", "train": "x.csv"}
    raw["features"] = {"sparse": {"columns": ["default", "wide", "job"], "dim": 2}}
    raw["model"] = {"arch": "wide_deep"}
    raw["tables"] = {"default": {"learning_rate": 0.3}, "wide/deep": {"learning_rate": 0.1}}
    config = parse_config(raw)
    tables = [column.table for column in config.features.sparse_columns()]
    assert tables == ["default/deep", "wide/deep", "job"]
    assert config.table_settings("default/deep").learning_rate == 0.3
    assert config.table_settings("wide/deep").learning_rate == 0.1
    assert config.table_settings("wide/wide").initializer.constant == 0
    raw["features"]["sparse"]["table"] = "words"
    del raw["tables"]["wide/deep"]
    shared = parse_config(raw).features.sparse_columns()
    assert [column.table for column in shared] == 3 * ["words"]


@pytest.mark.parametrize(
    ("path", "value", "line"),
    [
        ("model.bottom", [8], r"model.bottom: \[8\] must end with the embeddings' dim 16"),
        (
            "features.sparse",
            [{"columns": ["C1"], "dim": 16}, {"columns": ["C2"], "dim": 8}],
            r"dims \[8, 16\] differ",
        ),
        (
            "features",
            {"sparse": {"columns": ["C1"], "dim": 16}},
            "dlrm needs at least two vectors",
        ),
    ],
)
def test_dlrm_refuses_widths_that_cannot_be_multiplied(raw, path, value, line):
    with pytest.raises(InvalidArgumentError, match=line):
        parse_config(merged(raw, path, value))


@pytest.mark.parametrize(
    ("data", "line"),
    [
        ({"delimiter": ";"}, "delimiter is an option of format 'csv', the format here is 'criteo'"),
        ({"format": "csv", "weights": True}, "weights is an option of format 'libsvm'"),
        ({"format": "csv", "columns": ["a", "a"]}, "data.columns: 'a' is named twice"),
        ({"format": "csv", "columns": ["a"]}, "label 'label' is not one of columns a"),
    ],
)
def test_data_options_that_do_not_fit_the_format_are_refused(raw, data, line):
    raw["data"] |= data
    with pytest.raises(InvalidArgumentError) as refused:
        parse_config(raw)
    assert line in str(refused.value)


@pytest.mark.parametrize(
    ("online", "line"),
    [
        ({"models": "m"}, "models without store: publishing needs both"),
        ({"store": "redis://x"}, "store without models: publishing needs both"),
        ({"store": "lmdb:/rows", "models": "m"}, "store 'lmdb:/rows': no URL of a store"),
        ({"join": {"key": "id"}}, "join without time: windows are of event time"),
        ({"canary_servers": ["h:1"]}, "canary_servers without canary"),
        ({"admin_token_file": "t"}, "admin_token_file without admin"),
        ({"source": "redis://x", "publish_secs": 1}, "did you mean 'publish_seconds'"),
    ],
)
def test_settings_of_online_training_that_miss_another_are_refused(raw, online, line):
    raw["online"] = online
    with pytest.raises(InvalidArgumentError) as refused:
        parse_config(raw)
    assert line in str(refused.value)


def test_a_configuration_cannot_be_changed(raw):
    config = parse_config(raw)
    with pytest.raises(ValidationError, match="frozen"):
        config.seed = 3
    assert isinstance(config, RunConfig)
