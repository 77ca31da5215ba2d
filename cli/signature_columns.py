"""Columns of a data file for the inputs of a signature, served or loaded. B rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hotrow.errors import InvalidArgumentError
from hotrow.trainer.data import Column, ColumnKind, open_data
from hotrow.trainer.data.batch import RawBatch
from hotrow.trainer.data.data_file import DataFile

if TYPE_CHECKING:
    from hotrow.cli.predict import ScoringOptions


class SignatureColumns:
    """The columns that a signature reads from a file, and the output with the scores.

    Attributes:
        output: name of the output.
    """

    def __init__(self, signature: Any, output: str | None) -> None:
        """Reads a `SignatureDef`.

        Raises:
            InvalidArgumentError: an input takes no column, or there is no such output.
        """
        from hotrow.serving.columns import choose_output, column_inputs

        self.output = choose_output(signature, output)
        self._inputs = column_inputs(signature)

    def open(self, options: ScoringOptions, model: str, *, require_labels: bool) -> DataFile:
        """Returns the file of the options with the columns of the inputs.

        Args:
            options: name the file and how to read it.
            model: its name, for errors.
            require_labels: refuse a file without labels.

        Raises:
            HotrowError: the file cannot be read or lacks a column.
        """
        data = options.data_config(any(item.weighted for item in self._inputs))
        columns = [Column(item.name, ColumnKind(item.kind)) for item in self._inputs]
        try:
            return open_data(options.data, data, columns=columns, require_labels=require_labels)
        except InvalidArgumentError as err:
            raise InvalidArgumentError(f"{err} ({model} takes it)") from err

    def pack(self, batch: RawBatch) -> dict[str, Any]:
        """Returns one TensorProto for each input, as it is sent."""
        tensors: dict[str, Any] = {}
        for item in self._inputs:
            tensors.update(item.pack(batch.columns[item.name]))
        return tensors

    def scores(self, values: Any, rows: int) -> Any:
        """Returns the output as float [B]; see `column_scores`."""
        from hotrow.serving.columns import column_scores

        return column_scores(self.output, values, rows)
