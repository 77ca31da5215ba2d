"""From a request's ModelSpec to the servable that answers it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from tensorflow_serving.apis import model_pb2

from hotrow.serving.lifecycle import ModelLifecycle, VersionStatus
from hotrow.serving.servable import Servable
from hotrow.serving.status import Code, RequestError, invalid


class Catalog:
    """The models of a server by name."""

    def __init__(self, models: Mapping[str, ModelLifecycle[Servable]]) -> None:
        self._models = models

    @contextmanager
    def acquire(self, spec: model_pb2.ModelSpec) -> Iterator[Servable]:
        """Yields the version that the spec asks for; it is not unloaded before the exit.

        Raises:
            RequestError: INVALID_ARGUMENT for a spec without a name or with an unknown label,
                NOT_FOUND when no such model or version serves.
        """
        if not spec.name:
            raise invalid("ModelSpec has no name specified.")
        choice = spec.WhichOneof("version_choice")
        if choice == "version_label":
            raise invalid(f"Unrecognized servable version label: {spec.version_label}")
        version = spec.version.value if choice == "version" else None
        if spec.name not in self._models:
            wanted = f"Latest({spec.name})"
            if version is not None:
                wanted = f"Specific({spec.name}, {version})"
            raise RequestError(Code.NOT_FOUND, f"Servable not found for request: {wanted}")
        with self._models[spec.name].acquire(version) as servable:
            yield servable

    def statuses(self, spec: model_pb2.ModelSpec) -> list[VersionStatus]:
        """Returns the status of the spec's version, or of all, highest first; ignores a label.

        Raises:
            RequestError: NOT_FOUND when the model or the version was never seen.
        """
        model = self._models.get(spec.name)
        known = model.statuses() if model is not None else []
        if spec.WhichOneof("version_choice") == "version":
            version = spec.version.value
            known = [status for status in known if status.version == version]
            if not known:
                raise RequestError(
                    Code.NOT_FOUND, f"Could not find version {version} of model {spec.name}"
                )
        if not known:
            raise RequestError(Code.NOT_FOUND, f"Could not find any versions of model {spec.name}")
        return known
