"""Norms of cuts: how much they may grow from one to the next."""

import pytest

from hotrow.norms import GateError, Norm, check_growth


def norm(rms, largest=1.0):
    return Norm(name="changed rows of table 't'", rms=rms, largest=largest)


def test_a_norm_may_shrink_and_grow_up_to_the_ratio():
    check_growth([norm(1.0)], [norm(0.0001)], 10.0)
    check_growth([norm(1.0)], [norm(10.0, 10.0)], 10.0)
    check_growth([norm(0.001, 0.001)], [norm(0.9, 0.9)], 10.0)  # 0.1 counts
    check_growth([], [norm(1e30)], 10.0)
    check_growth([norm(1.0)], [norm(1e30)], None)


@pytest.mark.parametrize(
    ("now", "what"),
    [(norm(10.1), "root mean square"), (norm(1.0, 10.1), "largest absolute value")],
)
def test_a_norm_that_grows_more_is_refused_by_name(now, what):
    with pytest.raises(GateError, match=f"table 't': the {what} .* in the cut before 1"):
        check_growth([norm(1.0)], [now], 10.0)
