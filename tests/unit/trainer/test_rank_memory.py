"""The memory of a rank: what the machine and its cgroups leave, shared with the other ranks."""

from __future__ import annotations

import os

import pytest
from unit.trainer.ranked_training import config_of, train_on, write_files

from hotrow.trainer.rank_memory import ROWS_SHARE, free_memory, least_of_a_rank
from hotrow.trainer.sharding import read_plan

GB = 10**9


def system(root, files):
    """Writes files below a folder that stands for `/`."""
    base = {
        "proc/sys/kernel/random/boot_id": "machine-1\n",
        "proc/meminfo": "MemTotal: 64000000 kB\nMemFree: 1 kB\nMemAvailable: 48000000 kB\n",
    }
    for name, text in (base | files).items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def test_without_a_limit_the_available_memory_of_the_machine_counts(tmp_path):
    assert list(free_memory(system(tmp_path, {})).values()) == [48_000_000 * 1024]


@pytest.mark.parametrize(
    "files",
    [
        {
            "proc/self/cgroup": "0::/jobs/7\n",
            "sys/fs/cgroup/jobs/7/memory.max": f"{8 * GB}\n",
            "sys/fs/cgroup/jobs/7/memory.current": f"{3 * GB}\n",
            "sys/fs/cgroup/jobs/7/memory.stat": f"anon 5\ninactive_file {GB}\n",
            "sys/fs/cgroup/memory.max": "max\n",
            "sys/fs/cgroup/memory.current": "1\n",
        },
        {
            "proc/self/cgroup": "4:memory:/jobs/7\n0::/\n",
            "sys/fs/cgroup/memory/jobs/memory.limit_in_bytes": f"{8 * GB}\n",
            "sys/fs/cgroup/memory/jobs/memory.usage_in_bytes": f"{3 * GB}\n",
            "sys/fs/cgroup/memory/jobs/memory.stat": f"cache 5\ntotal_inactive_file {GB}\n",
            "sys/fs/cgroup/memory/jobs/7/memory.limit_in_bytes": "9223372036854771712\n",
            "sys/fs/cgroup/memory/jobs/7/memory.usage_in_bytes": "1\n",
        },
        {
            "proc/self/cgroup": "0::/../elsewhere\n",
            "sys/fs/cgroup/memory.max": f"{8 * GB}\n",
            "sys/fs/cgroup/memory.current": f"{2 * GB}\n",
        },
    ],
    ids=["version 2", "version 1, on a parent", "a container's own root"],
)
def test_a_limit_leaves_what_is_not_used_or_can_be_dropped(tmp_path, files):
    assert sorted(free_memory(system(tmp_path, files)).values()) == [6 * GB, 48_000_000 * 1024]


def test_ranks_share_what_they_have_together():
    one, other = {"a": 60, "a/x": 50}, {"a": 60, "a/y": 20}
    assert least_of_a_rank([one, one]) == 25
    assert least_of_a_rank([one, other]) == 20
    assert least_of_a_rank([one, one, {"b": 10}]) == 10
    assert least_of_a_rank([{}, {}]) is None


def test_a_run_is_planned_for_the_memory_that_its_ranks_have(tmp_path):
    config = config_of(write_files(tmp_path), 2, train={"max_steps": 1, "eval_every_steps": None})
    results = train_on(2, config, tmp_path / "run")
    assert not isinstance(results[0], BaseException), results
    budget = read_plan(tmp_path / "run").memory_budget_bytes
    assert budget is not None
    machine = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    assert 0 < budget <= ROWS_SHARE * machine / 2
