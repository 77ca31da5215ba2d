"""Which column holds labels, and which of them means 1."""

from __future__ import annotations

import pyarrow as pa
import pytest

from hotrow.trainer.data.guess.label import guess_label, guess_positive, two_valued


def test_columns_of_two_values_are_found_over_all_batches() -> None:
    batches = [
        pa.RecordBatch.from_pydict({"a": ["x", "x"], "b": ["u", "v"], "c": ["1", ""]}),
        pa.RecordBatch.from_pydict({"a": ["y", "x"], "b": ["w", "u"], "c": ["1", "1"]}),
    ]
    assert two_valued(batches) == {"a": {"x": 3, "y": 1}}


@pytest.mark.parametrize(
    ("names", "candidates", "label"),
    [
        pytest.param(["default", "y", "z"], "default y z", "y", id="a better name first"),
        pytest.param(["default", "z", "x"], "default x", "default", id="by its name"),
        pytest.param(["a", "Click", "c"], "a Click c", "Click", id="in any case of letters"),
        pytest.param(["a", "b", "c"], "a c", "c", id="the last"),
        pytest.param(["a", "b", "c"], "a b", "a", id="the first"),
        pytest.param(["a", "b", "c"], "b", "b", id="the only one"),
        pytest.param(["a", "b", "c", "d"], "b c", None, id="none of several"),
        pytest.param(["y", "b"], "", None, id="none at all"),
    ],
)
def test_the_label_is_a_column_of_two_values(
    names: list[str], candidates: str, label: str | None
) -> None:
    found = guess_label(names, dict.fromkeys(candidates.split()))
    assert (found and found.value) == label


@pytest.mark.parametrize(
    ("one", "other", "positive"),
    [
        ("0", "1", None),
        ("1.0", "0.0", None),
        ("no", "yes", "yes"),
        ("False", "True", "True"),
        ("-1", "1", "1"),
        ("<=50K", ">50K", ">50K"),
        ("bad", "no", "bad"),
        ("often", "rare", "rare"),
    ],
)
def test_the_positive_label_is_the_one_that_says_so_or_the_rarer(
    one: str, other: str, positive: str | None
) -> None:
    for counts in ({one: 9, other: 3}, {other: 3, one: 9}):
        found = guess_positive(counts)
        assert (found and found.value) == positive
