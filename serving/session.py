"""A SavedModel in a TensorFlow session: the only file of the server that talks to TensorFlow.

Feeds go to the session as they are, past `Session.run`, which would cast them and check declared
shapes. So a client gets the messages that TF Serving, on the same C++ session, gives it.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tensorflow as tf
from tensorflow.core.protobuf import meta_graph_pb2
from tensorflow.python.client import pywrap_tf_session

from hotrow.errors import DataLossError, NotFoundError
from hotrow.serving.status import Code, RequestError, invalid
from hotrow.serving.tensor import Array


@dataclass(frozen=True)
class SessionOptions:
    """How a session is made. A number of threads of 0 lets TensorFlow choose."""

    tags: tuple[str, ...] = ("serve",)
    intra_op_threads: int = 0
    inter_op_threads: int = 0


class ModelSession:
    """A SavedModel, loaded and ready to run; safe to run from several threads.

    Attributes:
        signatures: the SavedModel's signatures by name.
    """

    def __init__(self, model: str, version: int, path: Path, options: SessionOptions) -> None:
        """Loads the SavedModel; kernels see (model, version) as session metadata.

        Raises:
            NotFoundError: `path` holds no SavedModel, or none with these tags.
            DataLossError: the SavedModel cannot be read.
            RequestError: TensorFlow refuses the graph, or its initialisation fails.
        """
        # Its loader warns that it is deprecated, at every first load.
        tf.get_logger().setLevel(logging.ERROR)
        self._graph = tf.Graph()
        self._tensors: dict[str, Any] = {}
        config = tf.compat.v1.ConfigProto(
            intra_op_parallelism_threads=options.intra_op_threads,
            inter_op_parallelism_threads=options.inter_op_threads,
        )
        config.experimental.session_metadata.name = model
        config.experimental.session_metadata.version = version
        try:
            self._session = tf.compat.v1.Session(graph=self._graph, config=config)
        except tf.errors.OpError as err:
            raise _request_error(err) from err
        try:
            self.signatures = self._load(path, options.tags)
        except Exception:
            self.close()
            raise

    def run(
        self, feeds: Mapping[str, Array], fetches: Iterable[str], timeout_seconds: float | None
    ) -> list[tuple[Any, int]]:
        """Returns (value, data type) of each fetched tensor.

        Args:
            feeds: name of a graph tensor -> value.
            fetches: names of graph tensors; one may come twice.
            timeout_seconds: None waits for ever.

        Raises:
            RequestError: with the code and message of the op that failed, or DEADLINE_EXCEEDED.
        """
        fed = {self._tensor(name)._as_tf_output(): value for name, value in feeds.items()}
        tensors = [self._tensor(name) for name in fetches]
        wanted = [tensor._as_tf_output() for tensor in tensors]
        options = None
        if timeout_seconds is not None:
            milliseconds = max(1, int(timeout_seconds * 1000))
            proto = tf.compat.v1.RunOptions(timeout_in_ms=milliseconds)
            options = pywrap_tf_session.TF_NewBufferFromString(proto.SerializeToString())
        try:
            values = pywrap_tf_session.TF_SessionRun_wrapper(
                self._session._session, options, fed, wanted, [], None
            )
        except tf.errors.OpError as err:
            raise _request_error(err) from err
        finally:
            if options is not None:
                pywrap_tf_session.TF_DeleteBuffer(options)
        return [
            (value, tensor.dtype.base_dtype.as_datatype_enum)
            for value, tensor in zip(values, tensors, strict=True)
        ]

    def close(self) -> None:
        """Frees the session now: TensorFlow allows one live session for a (name, version)."""
        self._session.close()
        handle, self._session._session = self._session._session, None
        if handle is not None:
            pywrap_tf_session.TF_DeleteSession(handle)
        self._tensors.clear()

    def _load(self, path: Path, tags: tuple[str, ...]) -> dict[str, meta_graph_pb2.SignatureDef]:
        if not any((path / name).is_file() for name in ("saved_model.pb", "saved_model.pbtxt")):
            raise NotFoundError(
                f"{path} holds no SavedModel: it has no saved_model.pb; "
                "export the model again, or remove the directory"
            )
        try:
            with self._graph.as_default():
                meta_graph = tf.compat.v1.saved_model.load(self._session, list(tags), str(path))
        except tf.errors.OpError as err:
            raise _request_error(err) from err
        except RuntimeError as err:
            raise NotFoundError(_one_line(err)) from err
        except (OSError, ValueError, KeyError, TypeError) as err:
            raise DataLossError(f"{path} cannot be read: {_one_line(err)}") from err
        return {name: meta_graph.signature_def[name] for name in meta_graph.signature_def}

    def _tensor(self, name: str) -> Any:
        """Returns the graph's tensor of this name ("x:0"), looked up once."""
        tensor = self._tensors.get(name)
        if tensor is None:
            try:
                tensor = self._graph.get_tensor_by_name(name)
            except (KeyError, ValueError) as err:
                raise invalid(
                    f"Tensor {name}, specified in either feed_devices or fetch_devices was not "
                    "found in the Graph"
                ) from err
            self._tensors[name] = tensor
        return tensor


def _request_error(error: tf.errors.OpError) -> RequestError:
    return RequestError(Code(error.error_code), error.message)


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())
