"""Copies the tables and weights of a checkpoint into the model of another run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from hotrow.errors import FailedPreconditionError
from hotrow.lineage import Lineage
from hotrow.ops.ranks import LONE, Ranks
from hotrow.trainer.agreement import agreed
from hotrow.trainer.checkpoint import stored
from hotrow.trainer.checkpoint.array_file import Arrays, read_arrays
from hotrow.trainer.checkpoint.restore import table_misfit
from hotrow.trainer.checkpoint.stored import StoredCheckpoint
from hotrow.trainer.checkpoint.table_check import check_rows
from hotrow.trainer.checkpoint.table_restore import restore_table
from hotrow.trainer.checkpoint.variable_files import path_of, stored_path_of

if TYPE_CHECKING:
    from hotrow.ops.table import Table
    from hotrow.trainer.models import Ranker

Key = tuple[str, int]
"""A variable's path, and how many variables of that path come before it."""

# The configuration sets a learning rate; a generator of dropout may start from its seed.
_NOT_CARRIED = "learning_rate"
_MAY_BE_NEW = "seed_generator"


@dataclass(frozen=True)
class Transferred:
    """The result of a transfer.

    Attributes:
        step: step of the checkpoint.
        lineage: lineage of its run; empty if a table starts empty, because its earlier rows are
            gone.
        dropped: texts that name what does not fit and starts new.
        dense: paths of the dense variables that have the checkpoint's values.
    """

    step: int
    lineage: Lineage
    dropped: tuple[str, ...]
    dense: frozenset[str]


@dataclass
class _Fit:
    """The parts of a checkpoint that fit."""

    tables: dict[str, Table] = field(default_factory=dict)
    lost_rows: bool = False
    dropped: list[str] = field(default_factory=list)
    assignments: list[tuple[Any, Any]] = field(default_factory=list)
    dense: set[str] = field(default_factory=set)


def transfer(
    chain: list[StoredCheckpoint],
    model: Ranker,
    optimizer: Any,
    report: Callable[[str], None],
    *,
    other_keys: Collection[str] = (),
    other_filter: Collection[str] = (),
    force: bool = False,
    ranks: Ranks = LONE,
) -> Transferred:
    """Copies rows, weights and optimizer state of a checkpoint into a new model.

    It makes all possible checks before it changes anything.

    Args:
        chain: from `open_chain`, which checked the files.
        model: the model of the new run, not trained yet.
        optimizer: the Keras optimizer of its dense part, built. It keeps its own learning rate.
        report: called with a line about what is dropped, and about occurrence counts that restart.
        other_keys: tables whose keys had another meaning in the checkpoint.
        other_filter: tables whose admission counts keys in another way; their counts start from 0.
        force: drop what does not fit.
        ranks: the ranks that train the model; each takes its own rows. A collective.

    Raises:
        DataLossError: the contents differ from the written ones.
        FailedPreconditionError: a part does not fit and `force` is false, or nothing fits.
    """
    tables = model.tables()

    def put() -> _Fit:
        fit = _fit_of(chain[-1], model, optimizer, other_keys)
        _check_fit(chain[-1], fit, force)
        for name, table in fit.tables.items():
            restore_table(table, chain, report, ranks, new_filter=name in other_filter)
        return fit

    try:
        fit = agreed(ranks, "rows of a checkpoint", put)
        check_rows(chain, fit.tables, ranks)
    except BaseException:
        for table in tables.values():
            table.clear()
        raise
    for variable, value in fit.assignments:
        variable.assign(value)
    for what in fit.dropped:
        report(f"dropped: {what}")
    facts = chain[-1].facts
    lineage = Lineage() if fit.lost_rows else Lineage.of_json(facts.get("lineage", []))
    return Transferred(facts["position"]["step"], lineage, tuple(fit.dropped), frozenset(fit.dense))


def _fit_of(
    checkpoint: StoredCheckpoint, model: Ranker, optimizer: Any, other_keys: Collection[str]
) -> _Fit:
    fit = _Fit()
    entries, tables = checkpoint.facts["tables"], model.tables()
    for name in [*entries, *(name for name in tables if name not in entries)]:
        if name not in tables:
            why = f"table {name!r}, which the model does not have"
        elif name not in entries:
            why = f"table {name!r} is new and starts empty"
        elif name in other_keys:
            why = f"the rows of table {name!r}, whose keys are made in another way now"
        else:
            why = table_misfit(entries[name], tables[name])
        if why:
            fit.dropped.append(why)
            fit.lost_rows = fit.lost_rows or name in entries
        else:
            fit.tables[name] = tables[name]
    whole = _fit_variables(
        fit, "weights", read_arrays(checkpoint.path / stored.MODEL), model.dense_variables()
    )
    fit.dense = {path_of(variable) for variable, _ in fit.assignments}
    state = _Fit()
    arrays = read_arrays(checkpoint.path / stored.OPTIMIZER)
    if whole and _fit_variables(state, "state", arrays, optimizer.variables):
        fit.assignments += state.assignments
    else:
        fit.dropped.append("the state of the dense optimizer")
    return fit


def _fit_variables(fit: _Fit, what: str, arrays: Arrays, variables: Sequence[Any]) -> bool:
    """Adds the assignments of variables that fit; returns whether all fit."""
    values = dict(_numbered((stored_path_of(name), value) for name, value in arrays.items()))
    own = dict(_numbered((path_of(variable), variable) for variable in variables))
    whole = True
    for key in [*own, *(key for key in values if key not in own)]:
        path = key[0]
        if path.rsplit("/", 1)[-1] == _NOT_CARRIED:
            continue
        if key in own and key in values and values[key].shape == tuple(own[key].shape):
            fit.assignments.append((own[key], values[key]))
        elif _MAY_BE_NEW not in path:
            shapes = [
                "none" if key not in side else list(side[key].shape) for side in (values, own)
            ]
            fit.dropped.append(f"{what} {path} (shape {shapes[0]} before, {shapes[1]} now)")
            whole = False
    return whole


def _numbered(pairs: Iterator[tuple[str, Any]]) -> Iterator[tuple[Key, Any]]:
    """Yields each value with its path and number: paths alone are not unique in Keras."""
    seen: Counter[str] = Counter()
    for path, value in pairs:
        yield (path, seen[path]), value
        seen[path] += 1


def _check_fit(checkpoint: StoredCheckpoint, fit: _Fit, force: bool) -> None:
    if fit.dropped and not force:
        raise FailedPreconditionError(
            f"{checkpoint.path} does not fit the model: {fit.dropped[0]}; use the configuration of "
            "its run, or add --force to drop what does not fit"
        )
    if not fit.tables and not fit.dense:
        raise FailedPreconditionError(
            f"nothing of {checkpoint.path} fits the model, --force or not: {fit.dropped[0]}; leave "
            "--from out"
        )
