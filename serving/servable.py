"""One loaded version of a model: any SavedModel, of TensorFlow 1 or 2, ours or not."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from tensorflow.core.framework import tensor_pb2
from tensorflow.core.protobuf import meta_graph_pb2
from tensorflow_serving.apis import classification_pb2, input_pb2, regression_pb2

from hotrow.serving import examples
from hotrow.serving.lookup import LookupBinding
from hotrow.serving.session import ModelSession, SessionOptions
from hotrow.serving.signature import find_signature, plan_predict
from hotrow.serving.status import invalid
from hotrow.serving.tensor import encode_tensor


class Servable:
    """A version that answers requests until it is closed; safe to use from several threads."""

    def __init__(
        self,
        model: str,
        version: int,
        path: Path,
        options: SessionOptions | None = None,
        store_url: str = "",
    ) -> None:
        """Binds the version's tables, if it has any, and loads its graph.

        Raises:
            HotrowError: the SavedModel cannot be loaded or its store cannot be opened.
        """
        self.model = model
        self.version = version
        self._lookup = LookupBinding(model, version, path, store_url)
        try:
            self._session = ModelSession(model, version, path, options or SessionOptions())
        except Exception:
            self._lookup.release()
            raise

    @property
    def signatures(self) -> Mapping[str, meta_graph_pb2.SignatureDef]:
        """The SavedModel's signatures by name."""
        return self._session.signatures

    def predict(
        self,
        signature_name: str,
        inputs: Mapping[str, tensor_pb2.TensorProto],
        output_filter: Iterable[str] = (),
        timeout_seconds: float | None = None,
    ) -> tuple[str, dict[str, tensor_pb2.TensorProto]]:
        """Returns the resolved signature's name, and the outputs by alias.

        Raises:
            RequestError: with TF Serving's code and text for what is wrong.
        """
        resolved, signature = find_signature(self.signatures, signature_name)
        plan = plan_predict(signature, inputs, output_filter)
        results = self._session.run(plan.feeds, plan.fetches.values(), timeout_seconds)
        outputs: dict[str, tensor_pb2.TensorProto] = {}
        for alias, (value, dtype) in zip(plan.fetches, results, strict=True):
            try:
                outputs[alias] = encode_tensor(value, dtype)
            except ValueError as err:
                raise invalid(f"output {alias}: {err}") from err
        return resolved, outputs

    def classify(
        self, signature_name: str, given: input_pb2.Input, timeout_seconds: float | None = None
    ) -> tuple[str, classification_pb2.ClassificationResult]:
        """Returns the resolved signature's name, and the classes of each example.

        Raises:
            RequestError: with TF Serving's code and text for what is wrong.
        """
        resolved, signature = examples.find_signature(self.signatures, signature_name)
        plan = examples.plan_classify(signature)
        rows = examples.serialized_examples(given)
        results = self._session.run({plan.input: rows}, plan.outputs.values(), timeout_seconds)
        return resolved, examples.classification_result(plan, results, len(rows))

    def regress(
        self, signature_name: str, given: input_pb2.Input, timeout_seconds: float | None = None
    ) -> tuple[str, regression_pb2.RegressionResult]:
        """Returns the resolved signature's name, and the value of each example.

        Raises:
            RequestError: with TF Serving's code and text for what is wrong.
        """
        resolved, signature = examples.find_signature(self.signatures, signature_name)
        plan = examples.plan_regress(signature)
        rows = examples.serialized_examples(given)
        results = self._session.run({plan.input: rows}, plan.outputs.values(), timeout_seconds)
        return resolved, examples.regression_result(results, len(rows))

    def close(self) -> None:
        """Frees the session, then the tables. No request may be running."""
        self._session.close()
        self._lookup.release()
