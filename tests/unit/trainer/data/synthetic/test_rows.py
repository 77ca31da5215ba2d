"""Generated rows."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from hotrow.trainer.data.synthetic import Parameters
from hotrow.trainer.data.synthetic.rows import BLOCK_ROWS, _hex_keys, generate_blocks
from hotrow.trainer.data.synthetic.true_model import TrueModel


def rows_of(rows: int, stream: int = 0, seed: int = 0) -> pa.Table:
    blocks = generate_blocks(TrueModel(Parameters(seed=seed)), rows, stream)
    return pa.Table.from_batches([block.table for block in blocks]).combine_chunks()


def test_more_rows_begin_with_those_of_fewer() -> None:
    many = rows_of(BLOCK_ROWS + 1000)
    assert many.num_rows == BLOCK_ROWS + 1000
    for rows in (1, 777, BLOCK_ROWS, BLOCK_ROWS + 1):
        assert many.slice(0, rows).equals(rows_of(rows))


def test_other_files_and_seeds_have_other_rows() -> None:
    first = rows_of(100)
    assert not first.equals(rows_of(100, stream=1))
    assert not first.equals(rows_of(100, seed=1))


def test_columns_look_like_criteos() -> None:
    table = rows_of(20_000)
    assert table.num_columns == 40
    assert table["I1"].type == pa.int64()
    distinct = [len(table[f"C{i}"].unique()) for i in range(1, 27)]
    assert min(distinct) < 20
    assert max(distinct) > 2000
    for i in range(1, 27):
        lengths = {len(text) for text in table[f"C{i}"].to_pylist()}
        assert lengths <= {0, 8}
    assert any(table[f"I{i}"].null_count for i in range(1, 14))
    assert any("" in table[f"C{i}"].unique().to_pylist() for i in range(1, 27))


def test_ranks_of_a_column_never_share_a_key() -> None:
    ranks = np.concatenate([np.arange(100_000), [2**32 - 1, -1]])
    keys = _hex_keys(ranks, column=3).to_pylist()
    assert len(set(keys)) == len(keys)
    assert keys[-1] == ""
    assert all(len(key) == 8 and int(key, 16) < 2**32 for key in keys[:-1])
    assert keys[:100] != _hex_keys(ranks[:100], column=4).to_pylist()
