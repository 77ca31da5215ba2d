"""Scores of the canary rows of online training by a running server, over gRPC."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from hotrow.cli.predict import ScoringOptions
from hotrow.cli.served_scores import ServedScores
from hotrow.config import RunConfig
from hotrow.trainer.online.canary import MOST_ROWS

if TYPE_CHECKING:
    from hotrow.trainer.data.batch import RawBatch

_TIMEOUT_SECONDS = 10.0


class ServedCanary:
    """Asks servers for their scores of the rows of `online.canary`.

    Args:
        config: the run's configuration; it names a canary.
    """

    def __init__(self, config: RunConfig) -> None:
        self._config = config
        self._servers: dict[str, tuple[ServedScores, RawBatch]] = {}

    def __call__(self, address: str) -> npt.NDArray[np.floating]:
        """Returns the scores of a server, float [N]; N at most `MOST_ROWS`.

        Raises:
            HotrowError: the server does not answer, or serves another model.
        """
        try:
            if address not in self._servers:
                self._servers[address] = self._open(address)
            source, rows = self._servers[address]
            scores: npt.NDArray[np.floating] = np.asarray(source.score(rows))
            return scores
        except BaseException:
            if address in self._servers:
                self._servers.pop(address)[0].__exit__(None, None, None)
            raise

    def _open(self, address: str) -> tuple[ServedScores, RawBatch]:
        config, data = self._config, self._config.data
        columns = None if data.columns is None else ",".join(data.columns)
        assert config.online.canary is not None
        options = ScoringOptions(
            place=None,
            step=None,
            checkpoint=None,
            store=None,
            access=None,
            server=address,
            model=config.online.model or config.name,
            data=config.online.canary,
            format=data.format,
            label=data.label,
            positive=data.positive,
            columns=columns,
            delimiter=data.delimiter,
            limit=MOST_ROWS,
            batch_size=MOST_ROWS,
            on_malformed="fail",
            signature=None,
            output=None,
            timeout_seconds=_TIMEOUT_SECONDS,
        )
        source = ServedScores(options)
        try:
            file = source.open(require_labels=True)
            rows = next(iter(file.raw_batches(MOST_ROWS, MOST_ROWS)))
        except BaseException:
            source.__exit__(None, None, None)
            raise
        return source, rows
