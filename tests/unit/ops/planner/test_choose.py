"""Which scheme is chosen, how ranks are balanced, and what a budget and the user change."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from unit.ops.planner.simulated_messages import Column
from unit.ops.planner.workloads import WORKLOADS, batch_of, features_of, multi_hot, one_hot, ragged

import hotrow
from hotrow.errors import DataLossError, InvalidArgumentError
from hotrow.ops.planner import SCHEMES, Sample, ShardingPlan, plan_sharding


def planned(tables, size=256, ranks=4, **options):
    """Plans tables, given as {name: (dim, columns)}."""
    features, batch = [], {}
    for name, (dim, columns) in tables.items():
        own = features_of(columns, dim, name=name)
        features += own
        batch |= batch_of(own, columns)
    sample = Sample(features, ranks)
    sample.add(batch, size)
    configs = list({f.table.name: f.table for f in features}.values())
    return plan_sharding(
        configs, sample.facts(), ranks=ranks, batch_size=size, sample_rows=size, **options
    )


def rng():
    return np.random.default_rng(3)


@pytest.mark.parametrize("workload", WORKLOADS, ids=lambda workload: workload.__name__)
@pytest.mark.parametrize("ranks", [2, 5], ids="{} ranks".format)
@pytest.mark.parametrize("dim", [1, 16, 128], ids="dim {}".format)
def test_a_table_alone_gets_the_scheme_with_the_least_load_but_for_two_percent(
    workload, ranks, dim
):
    plan = planned({"t": (dim, workload(rng(), 256))}, ranks=ranks)
    (table,) = plan.tables
    legal = [cost for cost in table.costs.values() if cost.refused is None]
    assert table.cost.busiest_bytes <= min(cost.busiest_bytes for cost in legal) / 0.98
    assert plan.busiest_bytes == pytest.approx(table.cost.busiest_bytes)
    assert plan.average_bytes == pytest.approx(sum(table.cost.stages.values()))


def test_one_key_a_sample_goes_by_row():
    assert planned({"t": (16, one_hot(rng(), 256))}).schemes() == {"t": "row"}


def test_many_keys_of_wide_rows_pooled_to_one_go_by_column():
    columns = [(ragged(rng(), 10**6, 256, 80), "sum")]
    plan = planned({"t": (128, columns)})
    assert plan.schemes() == {"t": "column"}
    assert plan.tables[0].why.startswith("least bytes; row_broadcast ")


def test_many_distinct_keys_of_one_column_are_pooled_where_they_are():
    splits = np.arange(257) * 100
    columns = [(Column(rng().integers(0, 10**6, 25_600), splits), "sum")]
    assert planned({"t": (1, columns)}, ranks=2).schemes() == {"t": "row_broadcast"}


def test_fewer_columns_than_ranks_are_not_split_by_column():
    columns = [(ragged(rng(), 10**6, 256, 80), "sum")]
    (table,) = planned({"t": (3, columns)}).tables
    assert table.costs["column"].refused == "3 columns are fewer than 4 ranks"
    assert table.scheme != "column"
    with pytest.raises(InvalidArgumentError, match=r"table 't': sharding 'column': 3 columns"):
        planned({"t": (3, columns)}, forced={"t": "column"})


@pytest.mark.parametrize("scheme", SCHEMES)
def test_a_forced_scheme_is_kept_and_shown(scheme):
    plan = planned({"t": (16, multi_hot(rng(), 256))}, forced={"t": scheme})
    (table,) = plan.tables
    assert (table.scheme, table.forced, table.why) == (scheme, True, "forced")
    assert (table.owner is not None) == (scheme == "table")


def test_auto_is_no_forced_scheme():
    (table,) = planned({"t": (16, one_hot(rng(), 256))}, forced={"t": "auto"}).tables
    assert (table.scheme, table.forced) == ("row", False)


def test_schemes_that_may_not_be_chosen_can_be_forced():
    columns = [(ragged(rng(), 10**6, 256, 80), "sum")]
    only = {"schemes": ("row", "table")}
    (table,) = planned({"t": (128, columns)}, **only).tables
    assert (table.scheme, table.why) == ("row", "least bytes")
    assert planned({"t": (128, columns)}, forced={"t": "column"}, **only).schemes() == {
        "t": "column"
    }


def test_unknown_schemes_and_tables_are_refused():
    tables = {"t": (16, one_hot(rng(), 256))}
    with pytest.raises(InvalidArgumentError, match=r"table 't': sharding is 'rows'.*'row'"):
        planned(tables, forced={"t": "rows"})
    with pytest.raises(
        InvalidArgumentError, match=r"with forced sharding is 'u'; must be one of \['t'\]"
    ):
        planned(tables, forced={"u": "row"})


def test_tables_that_are_kept_whole_are_spread_over_the_ranks():
    tables = {f"t{i}": (4 * (i + 1), one_hot(rng(), 256)) for i in range(12)}
    plan = planned(tables, forced=dict.fromkeys(tables, "table"))
    assert set(plan.owners().values()) == {0, 1, 2, 3}
    # The best that whole tables can do is the mean of what owners have to do.
    loads = dict.fromkeys(range(4), 0.0)
    for table in plan.tables:
        loads[table.owner] += table.cost.busiest_bytes
    assert max(loads.values()) <= 1.15 * sum(loads.values()) / 4


def test_skewed_owners_are_evened_out():
    # All keys are multiples of the number of ranks: rank 0 would own every row.
    tables = {f"t{i}": (8, [(Column(4 * np.arange(256)), "sum")]) for i in range(8)}
    plan = planned(tables)
    assert "table" in plan.schemes().values()
    assert {table.why for table in plan.tables} == {"least bytes with the other tables"}
    by_row = planned(tables, forced=dict.fromkeys(tables, "row"))
    assert plan.busiest_bytes < 0.5 * by_row.busiest_bytes
    assert by_row.tables[0].largest_share == 1.0


def test_samples_that_differ_by_chance_are_no_reason_to_even_out():
    tables = {f"t{i}": (16, one_hot(np.random.default_rng(i), 4096)) for i in range(26)}
    assert set(planned(tables, size=4096).schemes().values()) == {"row"}


def test_a_budget_of_memory_changes_schemes_to_what_takes_less():
    tables = {
        "wide": (64, [(ragged(rng(), 10**6, 256, 80), "sum")]),
        "small": (64, [(ragged(rng(), 10**6, 256, 40), "sum")]),
    }
    free = planned(tables)
    assert set(free.schemes().values()) == {"column"}
    smallest = planned(tables, forced=dict.fromkeys(tables, "row")).memory_bytes
    budget = (free.memory_bytes + smallest) / 2
    bound = planned(tables, memory_budget_bytes=budget)
    assert smallest <= bound.memory_bytes <= budget
    assert free.busiest_bytes < bound.busiest_bytes
    assert "saves memory" in {table.why for table in bound.tables}


def test_whole_tables_that_fill_several_ranks_are_spread_when_they_do_not_fit():
    # Rank 0 owns the keys of the sample, so whole tables at two other ranks even out the traffic.
    # Neither of these alone can lower the memory of the fullest rank: the other one stays.
    tables = [hotrow.TableConfig(name, 8) for name in ("a", "b", "c")]
    sample = Sample([hotrow.FeatureConfig(f"f{t.name}", t) for t in tables], 4)
    sample.add({f"f{t.name}": Column(4 * np.arange(256)) for t in tables}, 256)
    facts = {
        name: replace(one, rows=10**6, largest_share=0.25) for name, one in sample.facts().items()
    }
    options = {"ranks": 4, "batch_size": 256, "schemes": ("row", "table")}
    free = plan_sharding(tables, facts, **options)
    assert sorted(free.schemes().values()) == ["row", "table", "table"]
    assert len(set(free.owners().values())) == 2
    bound = plan_sharding(tables, facts, memory_budget_bytes=0.7 * free.memory_bytes, **options)
    assert set(bound.schemes().values()) == {"row"}
    assert bound.memory_bytes == 0.6 * free.memory_bytes
    assert [table.why for table in bound.tables].count("saves memory") == 2


def test_a_budget_that_cannot_be_kept_is_reported():
    plan = planned({"t": (16, one_hot(rng(), 256))}, memory_budget_bytes=10)
    assert plan.memory_bytes > 10
    assert plan.memory_budget_bytes == 10


def test_memory_counts_lines_with_their_state():
    columns = [(Column(np.arange(1000)), "sum")]

    def memory(optimizer, scheme, dim=16, **options):
        table = hotrow.TableConfig("t", dim, optimizer=optimizer, **options)
        sample = Sample([hotrow.FeatureConfig("f", table, "sum")], 4)
        sample.add({"f": columns[0][0]}, 1000)
        plan = plan_sharding(
            [table], sample.facts(), ranks=4, batch_size=1000, forced={"t": scheme}
        )
        return plan.memory_bytes

    assert memory(hotrow.SGD(), "replicated") == 1000 * (64 + 24)
    assert memory(hotrow.SGD(), "table") == 1000 * (64 + 24)
    assert memory(hotrow.SGD(), "row") == 250 * (64 + 24)
    assert memory(hotrow.SGD(), "row_broadcast") == 250 * (64 + 24)
    assert memory(hotrow.Adagrad(), "row") == 250 * (128 + 24)
    assert memory(hotrow.Adam(), "row") == 250 * (192 + 4 + 24)
    assert memory(hotrow.Adam(bias_correction="global"), "row") == 250 * (192 + 24)
    assert memory(hotrow.RowwiseAdagrad(), "row") == 250 * (64 + 4 + 24)
    assert memory(hotrow.SGD(), "column", 17) == 1000 * (5 * 4 + 24)
    assert memory(hotrow.SGD(), "row", dtype="bfloat16") == 250 * (32 + 24)


def test_memory_counts_caches_and_lines_on_disk():
    def memory(scheme, **cache):
        table = hotrow.TableConfig(
            "t", 16, 10**6, optimizer=hotrow.SGD(), cache=hotrow.Cache(**cache)
        )
        sample = Sample([hotrow.FeatureConfig("f", table, "sum")], 4)
        sample.add({"f": Column(np.arange(1000))}, 1000)
        plan = plan_sharding(
            [table], sample.facts(), ranks=4, batch_size=1000, forced={"t": scheme}
        )
        return plan.memory_bytes

    assert memory("row", rows=512) == 250 * (64 + 24) + 512 * (64 + 28)
    assert memory("table", bytes=10**6) == 1000 * (64 + 24) + 10**6
    assert memory("row", ratio=0.01, disk="lines") == 250 * 27 + 10_000 * (64 + 28)
    assert memory("row", rows=512, device="gpu") == 250 * (64 + 24)


def test_a_plan_of_no_table_is_empty():
    plan = plan_sharding([], {}, ranks=2, batch_size=8)
    assert plan.schemes() == {}
    assert plan.busiest_bytes == plan.memory_bytes == 0


def test_a_plan_goes_through_json():
    tables = {"a": (16, one_hot(rng(), 256)), "b": (2, multi_hot(rng(), 256))}
    plan = planned(tables, forced={"b": "table"}, memory_budget_bytes=1e9)
    assert ShardingPlan.from_dict(json.loads(json.dumps(plan.to_dict()))) == plan


@pytest.mark.parametrize(
    "change",
    [
        lambda d: d.update(version=2),
        lambda d: d.pop("version"),
        lambda d: d.pop("tables"),
        lambda d: d.update(more=1),
        lambda d: d["tables"][0].update(scheme="rows"),
        lambda d: d["tables"][0]["costs"].update(rows=d["tables"][0]["costs"]["row"]),
        lambda d: d["tables"][0].pop("costs"),
        lambda d: d.update(tables=3),
    ],
)
def test_a_damaged_plan_is_refused(change):
    values = json.loads(json.dumps(planned({"t": (16, one_hot(rng(), 256))}).to_dict()))
    change(values)
    with pytest.raises(DataLossError, match="no sharding plan"):
        ShardingPlan.from_dict(values)
