"""The options of `platform data` that control how a data file is read."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click

if TYPE_CHECKING:
    from hotrow.trainer.data import DataFile

FILE = click.Path(dir_okay=False, path_type=Path)
JSON_HELP = "Write the result to a file as JSON; - is standard output."


def reading_options(guessed: bool) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Returns a decorator that adds the options.

    Args:
        guessed: whether missing options are guessed from the file; otherwise they have defaults.
    """
    otherwise = "[default: guessed]" if guessed else ""

    def add(function: Callable[..., Any]) -> Callable[..., Any]:
        for option in (
            click.option(
                "--config",
                type=FILE,
                metavar="CONFIG.yaml",
                help="Read the columns of a run's features, as its data section says.",
            ),
            click.option("--weights", is_flag=True, help="Keep the values of LibSVM as weights."),
            click.option(
                "--positive",
                metavar="TEXT",
                help=f"The label of a CSV or Parquet file that means 1.  {otherwise}".strip(),
            ),
            click.option(
                "--label",
                default=None if guessed else "label",
                show_default=not guessed,
                help=f"Column of the labels.  {otherwise}".strip(),
            ),
            click.option(
                "--delimiter",
                help=f"Between a CSV's values.  {otherwise or '[default: a comma]'}",
            ),
            click.option(
                "--columns", metavar="A,B,..", help="Names of a CSV without a header line."
            ),
            click.option(
                "--format",
                "format_name",
                type=click.Choice(["criteo", "csv", "libsvm", "parquet"]),
                help=f"Of the file.  {otherwise or '[default: by its name]'}",
            ),
        ):
            function = option(function)
        return function

    return add


def policy_option(default: str) -> Callable[..., Any]:
    """Returns the option for the treatment of malformed lines."""
    return click.option(
        "--on-malformed",
        type=click.Choice(["fail", "skip"]),
        default=default,
        show_default=True,
        help="Stop at the first malformed line, or skip and count such lines.",
    )


def open_by_config(path: Path, config: Path, on_malformed: Literal["fail", "skip"]) -> DataFile:
    """Opens a data file with the columns of a run's features, as its data section says."""
    from hotrow.config import load_config
    from hotrow.trainer.data import open_data
    from hotrow.trainer.data.list_columns import with_list_columns

    run = with_list_columns(load_config(config, []), path)
    data = run.data.model_copy(update={"on_malformed": on_malformed})
    return open_data(path, data, run.features)


def split_columns(columns: str | None) -> tuple[str, ...] | None:
    """Returns the names of `--columns`."""
    return None if columns is None else tuple(columns.split(","))
