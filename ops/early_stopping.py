"""`hotrow.EarlyStopping`: Keras' callback, which also restores the rows of tables."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import keras


class EarlyStopping(keras.callbacks.EarlyStopping):  # type: ignore[misc]
    """Stops training when a metric no longer improves, and restores the best epoch as a whole.

    It restores rows, dense weights and the states of their optimizers together. Keras' own callback
    restores only dense weights and leaves the rows of the last epoch. After each epoch that is the
    best so far, the callback writes the whole model to one file, which replaces the previous one;
    it deletes the file when training ends. After a restoration, make a full export before the next
    incremental one.

    Args:
        args: arguments of `keras.callbacks.EarlyStopping`.
        restore_best_weights: restore the best epoch when training ends; True by default.
        directory: folder of the file; None: the system's folder for temporary files.
        options: keyword arguments of `keras.callbacks.EarlyStopping`.

    Raises:
        UnimplementedError: the tables are split over ranks; raised at the end of an epoch.
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
        """Resets the callback's state."""
        super().on_train_begin(logs)
        self._drop_files()

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """Compares the metric, and saves the model if this epoch is the best so far."""
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
