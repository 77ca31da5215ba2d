"""Scores of a served model, over gRPC."""

from __future__ import annotations

from types import TracebackType
from typing import Any

from hotrow.cli.predict import ScoringOptions
from hotrow.cli.quiet_start import import_tensorflow_quietly
from hotrow.cli.signature_columns import SignatureColumns
from hotrow.trainer.data.batch import RawBatch
from hotrow.trainer.data.data_file import DataFile


class ServedScores:
    """The newest version that a server serves of a model; see `ScoreSource`."""

    def __init__(self, options: ScoringOptions) -> None:
        """Reads the model's signature from the server.

        Raises:
            HotrowError: the server cannot be reached, or serves no such model or signature.
        """
        import_tensorflow_quietly()
        from hotrow.serving.client import PredictClient

        assert options.server is not None  # `open_source` has checked
        assert options.model is not None
        self._options = options
        self._client = PredictClient(options.server, options.model, options.timeout_seconds)
        try:
            version, signature = self._client.signature(options.signature_name)
            self._columns = SignatureColumns(signature, options.output)
        except BaseException:
            self._client.__exit__()
            raise
        self.title = f"model        {options.model}, version {version}"
        self.conditions = {"model": options.model, "version": version}

    def open(self, require_labels: bool) -> DataFile:
        """Returns the file, with the columns of the signature."""
        return self._columns.open(
            self._options, f"model {self._options.model!r}", require_labels=require_labels
        )

    def score(self, batch: RawBatch) -> Any:
        """Returns the scores of rows, float [B]; one request."""
        columns = self._columns
        answer = self._client.predict(
            self._options.signature_name, columns.pack(batch), columns.output
        )
        return columns.scores(answer, batch.size)

    @property
    def doubts(self) -> dict[str, int]:
        """Lookups that got default rows and rows that may be old, as the server counts them."""
        return {"default_rows": self._client.default_rows, "stale_rows": self._client.stale_rows}

    def __enter__(self) -> ServedScores:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._client.__exit__(kind, error, trace)
