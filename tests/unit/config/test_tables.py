"""Tables of a configuration: what they inherit, their optimizers, admission, expiry and cache."""

from __future__ import annotations

import pytest
import yaml
from unit.config.config_values import example, merged

import hotrow
from hotrow.config import (
    load_config,
    parse_config,
)
from hotrow.errors import InvalidArgumentError


@pytest.fixture
def raw():
    return example()


def test_configurations_and_programs_pool_alike_by_default(raw):
    raw["features"]["sparse"] = {"columns": ["C1"], "dim": 16, "separator": "|"}
    (column,) = parse_config(raw).features.sparse_columns()
    assert column.combiner == hotrow.TableConfig("t", 16).combiner


def test_tables_inherit_what_they_leave_out(raw):
    raw["tables"] = {
        "default": {"learning_rate": 0.2},
        "wide": {"optimizer": "sgd"},
        "C1": {"initializer": {"normal": 0.1}},
        "C2/wide": {"learning_rate": 0.3},
    }
    config = parse_config(raw)
    assert config.table_settings("C1").learning_rate == 0.2
    assert config.table_settings("C1").initializer.normal == 0.1
    assert config.table_settings("C2").initializer.uniform == 0.05
    assert config.table_settings("C1/wide").optimizer == "sgd"
    assert config.table_settings("C1/wide").initializer.constant == 0
    assert config.table_settings("C2/wide").optimizer == "sgd"
    assert config.table_settings("C2/wide").learning_rate == 0.3


def test_an_optimizer_is_inherited_with_its_options_or_not_at_all(raw):
    raw["tables"] = {
        "default": {"optimizer": "momentum", "learning_rate": 0.2, "momentum": 0.5, "l2": 0.1},
        "C1": {"optimizer": "adam"},
        "C2": {"momentum": 0.7, "dtype": "bfloat16"},
        "wide": {"optimizer": "ftrl", "l1": 0.3},
    }
    config = parse_config(raw)
    assert config.table_settings("C1").optimizer_as_spec() == hotrow.Adam()
    assert config.table_settings("C2").optimizer_as_spec() == hotrow.Momentum(0.2, 0.7, l2=0.1)
    assert config.table_settings("C2").dtype == "bfloat16"
    assert config.table_settings("C2/wide").optimizer_as_spec() == hotrow.Ftrl(l1=0.3)


@pytest.mark.parametrize(
    ("settings", "optimizer"),
    [
        ({"optimizer": "sgd"}, hotrow.SGD(0.01)),
        ({"optimizer": "momentum", "nesterov": True}, hotrow.Momentum(0.01, 0.9, True)),
        ({"learning_rate": 1, "epsilon": 1e-5}, hotrow.Adagrad(1.0, 1e-6, 1e-5)),
        (
            {"optimizer": "rowwise_adagrad", "initial_accumulator": 0},
            hotrow.RowwiseAdagrad(0.1, 0.0),
        ),
        (
            {"optimizer": "adam", "beta_1": 0.8, "beta_2": 0.9, "bias_correction": "global"},
            hotrow.Adam(0.001, 0.8, 0.9, 1e-7, "global"),
        ),
        (
            {"optimizer": "adam", "weight_decay": 0.01, "clip_row_norm": 2.0},
            hotrow.Adam(weight_decay=0.01, clip_row_norm=2.0),
        ),
        (
            {"optimizer": "ftrl", "l1": 1, "l2": 2, "l2_shrinkage": 3, "beta": 4},
            hotrow.Ftrl(0.05, 1e-6, 1.0, 2.0, 3.0, 4.0),
        ),
        (
            {"learning_rate": {"schedule": "exponential_decay", "initial_learning_rate": 0.1,
                               "decay_steps": 10, "decay_rate": 0.5, "staircase": True}},
            hotrow.Adagrad(
                hotrow.Schedule(
                    "ExponentialDecay",
                    {"initial_learning_rate": 0.1, "decay_steps": 10, "decay_rate": 0.5,
                     "staircase": True},
                )
            ),
        ),
    ],
)  # fmt: skip
def test_the_optimizer_of_a_table_is_that_of_its_settings(tmp_path, raw, settings, optimizer):
    raw["tables"] = {"C1": settings}
    config = parse_config(raw)
    assert config.table_settings("C1").optimizer_as_spec() == optimizer
    (tmp_path / "c.yaml").write_text(config.to_yaml())
    again = load_config(tmp_path / "c.yaml").table_settings("C1")
    assert again.optimizer_as_spec() == optimizer


def test_options_of_other_optimizers_are_not_in_the_resolved_configuration(raw):
    raw["tables"] = {"default": {"optimizer": "adam"}}
    resolved = yaml.safe_load(parse_config(raw).to_yaml())["tables"]["default"]
    assert resolved["learning_rate"] == 0.001
    assert resolved["beta_2"] == 0.999
    assert not {"momentum", "nesterov", "initial_accumulator", "l1", "beta"} & resolved.keys()


def test_admission_and_expiry_reach_the_table(raw):
    raw["tables"] = {
        "default": {"admission": {"occurrences": 3}, "expiry": {"after_steps": 10}},
        "C1": {"admission": None, "expiry": {"rare_count": 2, "rare_after_steps": 5}},
        "C2": {"admission": {"occurrences": 2, "filter": "bloom", "expected_keys": 1000}},
    }
    config = parse_config(raw)
    assert config.table_settings("default").admission.as_spec() == hotrow.Admission(3)
    assert config.table_settings("C1").admission is None
    assert config.table_settings("C1").expiry.as_spec() == hotrow.Expiry(None, 2, 5)
    assert config.table_settings("C2").admission.as_spec() == hotrow.Admission(2, "bloom", 1000)
    assert config.table_settings("C2").expiry.as_spec() == hotrow.Expiry(10)


@pytest.mark.parametrize(
    ("values", "cache"),
    [
        ({}, None),
        ({"policy": "lru", "prefetch": 8, "warmup": 0}, None),
        ({"rows": 7}, hotrow.Cache(rows=7)),
        ({"bytes": 1000, "policy": "lru"}, hotrow.Cache(bytes=1000, policy="lru")),
        ({"ratio": 1}, hotrow.Cache(ratio=1.0)),
    ],
)
def test_the_cache_is_that_of_its_section(raw, values, cache):
    raw["tables"] = {"default": {"vocabulary_size": 1000}}
    assert parse_config(raw | {"cache": values}).cache.as_spec() == cache


@pytest.mark.parametrize(
    ("arch", "bounded", "missing"),
    [
        ("wide_deep", ["C1", "C2"], "C1/wide"),
        ("wide_deep", ["default"], None),
        ("logistic", ["C1"], "C1/wide"),
        ("logistic", ["wide"], None),
    ],
)
def test_a_share_is_refused_where_a_table_of_the_model_has_no_vocabulary(
    raw, arch, bounded, missing
):
    tables = {name: {"vocabulary_size": 5} for name in bounded}
    values = raw | {"model": {"arch": arch}, "tables": tables, "cache": {"ratio": 0.5}}
    if missing is None:
        assert parse_config(values).cache.ratio == 0.5
    else:
        with pytest.raises(InvalidArgumentError, match=f"table '{missing}' has none"):
            parse_config(values)


DECAY = {"schedule": "exponential_decay", "initial_learning_rate": 1, "decay_steps": 1,
         "decay_rate": 0.5}  # fmt: skip


@pytest.mark.parametrize(
    ("path", "value", "line"),
    [
        (
            "tables.default",
            {"optimizer": "adam", "momentum": 0.5},
            "tables.default: momentum is no option of adam; its options are learning_rate, l2",
        ),
        ("tables.default.beta_1", 0.5, "beta_1 is no option of adagrad"),
        ("tables.default.optimizer", "adagrd", "'adagrd' is not legal (did you mean 'adagrad'?)"),
        ("tables.default.optimizer", ["adam"], "['adam'] is not legal; expected one of sgd"),
        ("tables.default.learning_rate", "fast", "learning_rate: 'fast' is not legal; expected a"),
        (
            "tables.default",
            {"optimizer": "ftrl", "initial_accumulator": 0},
            "Ftrl.initial_accumulator_value is 0.0; must be positive unless l2 or beta is",
        ),
        ("tables.C1.dtype", "fp16", "tables.C1.dtype: 'fp16' is not legal"),
        ("tables.C1.state_dtype", "float8", "'float8' is not legal (did you mean 'float"),
        ("tables.C1.admission", 3, "tables.C1.admission: 3 is not legal; expected a section"),
        ("tables.C1.admission", {}, "tables.C1.admission.occurrences: missing"),
        (
            "tables.C1.admission",
            {"occurrences": 0},
            "occurrences: 0 is not legal; expected at least 1",
        ),
        (
            "tables.C1.admission",
            {"occurrences": 2, "filter": "bloom"},
            "tables.C1.admission: Admission.expected_keys is None; must be 1 or more with filter",
        ),
        (
            "tables.C1.admission",
            {"occurrences": 2, "expected_keys": 5},
            "Admission.expected_keys is 5; must be None with filter 'counter'",
        ),
        ("tables.C1.expiry", {}, "tables.C1.expiry: Expiry.after_steps is None; must be given"),
        (
            "tables.C1.expiry",
            {"after_steps": 3, "rare_count": 2},
            "Expiry.rare_after_steps is None; must be given with rare_count",
        ),
        ("tables.C1.expiry", {"after_step": 3}, "unknown key 'after_step' (did you mean 'after_"),
        (
            "optimizer.learning_rate",
            {"schedule": "cosine"},
            "optimizer.learning_rate.schedule: 'cosine' is not legal (did you mean 'cosine_decay'?",
        ),
        ("optimizer.learning_rate", {}, "optimizer.learning_rate.schedule: missing"),
        ("optimizer.learning_rate", -1, "optimizer.learning_rate: -1 is not legal; expected more"),
        (
            "tables.C1.learning_rate",
            {k: v for k, v in DECAY.items() if k != "decay_rate"},
            "tables.C1.learning_rate: exponential_decay needs decay_rate; set it",
        ),
        (
            "tables.C1.learning_rate",
            DECAY | {"alpha": 0.1},
            "alpha is no option of exponential_decay; legal: decay_rate, decay_steps",
        ),
        (
            "tables.C1.learning_rate",
            DECAY | {"decay_steps": 0},
            "tables.C1.learning_rate.decay_steps: 0 is not legal; expected at least 1",
        ),
        (
            "tables.C1.learning_rate",
            {"schedule": "piecewise_constant_decay", "boundaries": [5], "values": [1, 2, 3]},
            "1 boundaries need 2 values, 3 are given",
        ),
        (
            "optimizer",
            {"clipnorm": 1, "global_clipnorm": 1},
            "optimizer: clipnorm and global_clipnorm are both given; leave one out",
        ),
        ("embeddings.global_clipnorm", 0, "embeddings.global_clipnorm: 0 is not legal"),
    ],
)
def test_options_of_optimizers_and_tables_are_checked(raw, path, value, line):
    with pytest.raises(InvalidArgumentError) as refused:
        parse_config(merged(raw, path, value))
    assert line in str(refused.value)
    assert "<" not in str(refused.value)
