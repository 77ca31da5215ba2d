"""Scores of an exported version, in this process: the SavedModel itself, without a server."""

from __future__ import annotations

import contextlib
from pathlib import Path
from types import TracebackType
from typing import Any

from hotrow.cli.predict import ScoringOptions
from hotrow.cli.quiet_start import import_tensorflow_quietly
from hotrow.cli.signature_columns import SignatureColumns
from hotrow.errors import InvalidArgumentError, NotFoundError, nearest
from hotrow.manifest import read_manifest
from hotrow.store.access import StoreAccess
from hotrow.trainer.data.batch import RawBatch
from hotrow.trainer.data.data_file import DataFile
from hotrow.version_layout import FILE_NAME


class VersionScores:
    """A version directory with its rows, bound until it is closed; see `ScoreSource`."""

    def __init__(self, options: ScoringOptions, version: Path) -> None:
        """Loads the version, with the newest incremental export if there was one.

        Raises:
            HotrowError: it is no version, or its rows cannot be read.
        """
        import_tensorflow_quietly()
        self._options = options
        self._version = version
        self._stack = contextlib.ExitStack()
        try:
            self._load(options, version)
        except BaseException:
            self._stack.close()
            raise

    def _load(self, options: ScoringOptions, version: Path) -> None:
        import tensorflow as tf

        definition = _signature(version, options.signature_name)
        self._columns = SignatureColumns(definition, options.output)
        manifest = version / "assets" / FILE_NAME
        number = int(version.resolve().name) if version.resolve().name.isdecimal() else 0
        name, step = version.resolve().parent.name, None
        try:
            if manifest.exists():
                from hotrow.ops.binding import bind

                found = read_manifest(manifest)
                name, number = found.model, found.version
                access = options.access or StoreAccess()
                bound = self._stack.enter_context(bind(version, options.store, access=access))
                model = bound.load()
                step = found.step if bound.step is None else bound.step
            elif options.store is not None:
                raise InvalidArgumentError(
                    f"--store {options.store}: {version} is a standalone version, which has its "
                    "rows in its graph; leave --store out"
                )
            else:
                model = tf.saved_model.load(str(version))
        except (tf.errors.OpError, OSError) as err:
            raise NotFoundError(f"{version} cannot be loaded: {str(err).splitlines()[0]}") from err
        # Signatures keep the original names; functions take arguments, named after their tensors.
        self._function = model.signatures[options.signature_name]
        self._arguments = {
            key: _argument(info.name, options.signature_name)
            for key, info in definition.inputs.items()
        }
        of_step = "" if step is None else f", step {step}"
        self.title = f"model        {name}, version {number}{of_step}"
        self.conditions: dict[str, Any] = {"model": name, "version": number, "step": step}
        self.doubts: dict[str, int] = {}

    def open(self, require_labels: bool) -> DataFile:
        """Returns the file, with the columns of the signature."""
        return self._columns.open(self._options, str(self._version), require_labels=require_labels)

    def score(self, batch: RawBatch) -> Any:
        """Returns the scores of rows, float [B]."""
        import tensorflow as tf

        from hotrow.trainer.train_step import from_op_error

        # The tensors of a request, so that the answers equal a server's.
        inputs = {
            self._arguments[name]: tf.constant(tf.make_ndarray(proto))
            for name, proto in self._columns.pack(batch).items()
        }
        try:
            answer = self._function(**inputs)[self._columns.output].numpy()
        except tf.errors.OpError as err:
            raise from_op_error(err, str(self._version)) from err
        return self._columns.scores(answer, batch.size)

    def __enter__(self) -> VersionScores:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stack.close()


def _signature(version: Path, name: str) -> Any:
    """Returns the `SignatureDef` of a SavedModel's signature."""
    from google.protobuf.message import DecodeError
    from tensorflow.core.protobuf import saved_model_pb2

    saved = saved_model_pb2.SavedModel()
    try:
        saved.ParseFromString((version / "saved_model.pb").read_bytes())
    except (OSError, DecodeError) as err:
        raise NotFoundError(f"{version}/saved_model.pb cannot be read: {err}") from err
    graphs = [graph for graph in saved.meta_graphs if "serve" in graph.meta_info_def.tags]
    signatures = graphs[0].signature_def if graphs else {}
    if name not in signatures:
        legal = sorted(key for key in signatures if not key.startswith("__"))
        raise InvalidArgumentError(
            f"{version} has no signature {name!r}{nearest(name, legal)}; it has: {', '.join(legal)}"
        )
    return signatures[name]


def _argument(tensor: str, signature: str) -> str:
    """Returns the argument of a function whose placeholder is `<signature>_<argument>:0`."""
    return tensor.removesuffix(":0").removeprefix(f"{signature}_")
