"""`hotrow.EarlyStopping`: Keras' callback, which restores the rows of tables, too."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import keras


class EarlyStopping(keras.callbacks.EarlyStopping):  # type: ignore[misc]
    """Stops training when a metric no longer improves, and restores the best epoch as a whole.

    Rows, dense weights and the states of their optimizers go back together. Keras' own callback
    restores dense weights alone, and leaves the rows of the last epoch. Each epoch that is the
    best so far is written to one file on the disk, which holds the whole model; it replaces the
    one before, and goes when training ends. After a restoration an incremental export needs a
    full one first.

    Args:
        args: those of `keras.callbacks.EarlyStopping`.
        restore_best_weights: restore the best epoch when training ends; True by default.
        directory: where the file is written; None: where temporary files go.
        options: those of `keras.callbacks.EarlyStopping`.

    Raises:
        UnimplementedError: at the end of an epoch, tables are split over ranks.
    """

    def __init__(
        self,
        *args: Any,
        restore_best_weights: bool = True,
        directory: str | Path | None = None,
        **options: Any,
    ) -> None:
        super().__init__(*args, restore_best_weights=False, **options)
        self._restores = restore_best_weights
        self._directory = directory
        self._files: tempfile.TemporaryDirectory[str] | None = None

    def on_train_begin(self, logs: Any = None) -> None:
        """Begins anew."""
        super().on_train_begin(logs)
        self._drop_files()

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """Compares the metric, and keeps the model if this epoch is the best so far."""
        before = self.best
        super().on_epoch_end(epoch, logs)
        is_best = self.best is not None and self.best_epoch == epoch
        if not self._restores or not is_best or (before is not None and self.best == before):
            return
        if self._files is None:
            self._files = tempfile.TemporaryDirectory(prefix="hotrow-best-", dir=self._directory)
        new = self._best.with_name("new.weights.h5")
        self.model.save_weights(new)
        new.replace(self._best)

    def on_train_end(self, logs: Any = None) -> None:
        """Restores the best epoch."""
        super().on_train_end(logs)
        try:
            if self._files is not None:
                if self.verbose > 0:
                    print(f"Restoring rows and weights of epoch {self.best_epoch + 1}.")
                self.model.load_weights(self._best)
        finally:
            self._drop_files()

    @property
    def _best(self) -> Path:
        assert self._files is not None
        return Path(self._files.name, "best.weights.h5")

    def _drop_files(self) -> None:
        if self._files is not None:
            self._files.cleanup()
        self._files = None
