"""The models of a server: applies a whole configuration, at the start and again later."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol

from tensorflow_serving.config.model_server_config_pb2 import ModelServerConfig

from hotrow.serving.config.model_config import check_transition, local_base_path
from hotrow.serving.config.request_logging import Logging, check_below, logging_of
from hotrow.serving.lifecycle.model_lifecycle import State, VersionStatus
from hotrow.serving.lifecycle.versions import FindVersions, VersionPolicy, VersionSource
from hotrow.serving.wire.status import Code, RequestError

_LOG = logging.getLogger(__name__)

Labels = Mapping[str, Mapping[str, int]]
"""Versions by label, by model."""

# Interval at which a wait checks whether its caller still waits.
_LOOK_SECONDS = 0.2


class _Lifecycle(Protocol):
    def aspire(self, find: FindVersions) -> None: ...
    def retire(self) -> None: ...
    def stop(self) -> None: ...
    def outcome(self) -> VersionStatus | None: ...
    def settled(self, versions: set[int]) -> bool: ...
    def statuses(self) -> list[VersionStatus]: ...


class ServedModels:
    """Applies configurations, one at a time.

    Args:
        make_lifecycle: makes the lifecycle of a model that was not configured before.
        configure: takes the labels of all models, and how their requests are logged.
        keep: stores each applied configuration.
        any_label: whether a new label may point to a version that does not serve.
        log_root: see `RequestLogOptions`.
        looks: whether base paths are polled at all.
        changed: the lock of the lifecycles, notified of every change.
    """

    def __init__(
        self,
        make_lifecycle: Callable[[str], _Lifecycle],
        configure: Callable[[Labels, Logging], None],
        keep: Callable[[ModelServerConfig], None],
        *,
        any_label: bool,
        log_root: str,
        looks: bool,
        changed: threading.Condition,
    ) -> None:
        self._make_lifecycle = make_lifecycle
        self._configure = configure
        self._keep = keep
        self._any_label = any_label
        self._looks = looks
        self._changed = changed
        self._applying = threading.Lock()
        self._log_root = log_root
        self._config = ModelServerConfig()
        self._labels: Labels = {}
        # The sources of versions of each configured model, to detect a change.
        self._sources: dict[str, tuple[Path, VersionPolicy]] = {}
        self._lifecycles: dict[str, _Lifecycle] = {}

    def apply(self, config: ModelServerConfig, *, resumed: bool = False) -> list[str]:
        """Replaces the served models by these; returns the names of the new ones.

        Returns at once: models load and unload meanwhile.

        Args:
            config: with all of them.
            resumed: the previous control process applied it, including the labels.

        Raises:
            RequestError: the configuration is wrong, or a label points to a version that does not
                serve; nothing changed.
        """
        with self._applying:
            check_transition(self._config, config)
            check_below(self._log_root, config)
            if config.WhichOneof("config") is None:
                return []
            labels = self._checked_labels(config, resumed)
            self._keep(config)
            self._report_change(config)
            self._config = config
            self._labels = labels
            self._configure(labels, logging_of(config))
            models = {model.name: model for model in config.model_config_list.config}
            sources = {
                name: (local_base_path(model), model.model_version_policy)
                for name, model in models.items()
            }
            before, self._sources = self._sources, sources
            for name in before.keys() - sources.keys():
                self._lifecycles[name].retire()
            for name, source in sources.items():
                if before.get(name) != source:
                    self._lifecycle(name).aspire(self._finding(name, *source))
            return [name for name in sources if name not in before]

    def _report_change(self, config: ModelServerConfig) -> None:
        # The first configuration is no change; a file is applied at each poll.
        if self._config.WhichOneof("config") is not None and config != self._config:
            names = ", ".join(model.name for model in config.model_config_list.config)
            _LOG.info(f"the configuration has changed: {names or 'no model'}")

    def wait_until_available(self, models: list[str], given_up: Callable[[], bool]) -> bool:
        """Waits until each of these models serves; returns False if `given_up` ended the wait.

        Args:
            models: their names.
            given_up: ends the wait when it returns True.

        Raises:
            RequestError: UNKNOWN, when models failed for good; ABORTED, when one was removed from
                the configuration meanwhile.
        """
        with self._changed:
            while not given_up():
                for name in models:
                    if name not in self._sources:
                        raise RequestError(
                            Code.ABORTED,
                            f"Model {name} was removed from the configuration before it became "
                            "available",
                        )
                outcomes = {name: self._lifecycles[name].outcome() for name in models}
                if all(outcome is not None for outcome in outcomes.values()):
                    _raise_failures(outcomes)
                    return True
                self._changed.wait(_LOOK_SECONDS)
        return False

    def wait_until_settled(
        self, routed: Mapping[str, set[int]], given_up: Callable[[], bool], most_seconds: float
    ) -> None:
        """Waits until the versions that the previous control process served do so again.

        Args:
            routed: those versions, by model; empty if there are none.
            given_up: ends the wait when it returns True.
            most_seconds: the longest wait; versions that fail or are gone end it, too.
        """
        end = time.monotonic() + most_seconds
        with self._changed:
            while not given_up() and time.monotonic() < end and not self._settled(routed):
                self._changed.wait(_LOOK_SECONDS)

    def _settled(self, routed: Mapping[str, set[int]]) -> bool:
        models = [self._lifecycles[name] for name in self._sources]
        if not routed:
            return all(lifecycle.outcome() is not None for lifecycle in models)
        return all(
            self._lifecycles[name].settled(versions)
            for name, versions in routed.items()
            if name in self._sources
        )

    def statuses(self, model: str) -> list[VersionStatus]:
        """Returns the status of every version of a model seen since the start, highest first."""
        lifecycle = self._lifecycles.get(model)
        return [] if lifecycle is None else lifecycle.statuses()

    def known(self) -> dict[str, list[VersionStatus]]:
        """Returns the models that are or were configured, and the status of their versions."""
        return {name: self.statuses(name) for name in sorted({*self._lifecycles, *self._sources})}

    def configured(self) -> dict[str, list[VersionStatus]]:
        """Returns the configured models and the status of their versions, highest first."""
        return {name: self.statuses(name) for name in sorted(self._sources)}

    def serving(self) -> dict[str, int]:
        """Returns the configured models and the highest version of each that serves."""
        return {
            name: max(versions)
            for name in sorted(self._sources)
            if (versions := self._available(name))
        }

    def stop(self) -> None:
        """Unloads every version of every model, after its last request."""
        with self._applying:
            for lifecycle in self._lifecycles.values():
                lifecycle.retire()
            for lifecycle in self._lifecycles.values():
                lifecycle.stop()

    def _lifecycle(self, name: str) -> _Lifecycle:
        if name not in self._lifecycles:
            self._lifecycles = {**self._lifecycles, name: self._make_lifecycle(name)}
        return self._lifecycles[name]

    def _finding(self, name: str, base_path: Path, policy: VersionPolicy) -> FindVersions:
        if not self._looks:
            return lambda: None
        return VersionSource(name, base_path, policy).find

    def _available(self, name: str) -> set[int]:
        states = {status.version: status.state for status in self.statuses(name)}
        return {version for version, state in states.items() if state is State.AVAILABLE}

    def _checked_labels(self, config: ModelServerConfig, resumed: bool) -> Labels:
        labels = {
            model.name: dict(model.version_labels) for model in config.model_config_list.config
        }
        for name, versions in labels.items():
            for label, version in versions.items():
                before = self._labels.get(name, {}).get(label, version)
                # A label never moves to a version that does not serve.
                free = self._any_label and before == version
                if not free and not resumed and version not in self._available(name):
                    raise RequestError(
                        Code.FAILED_PRECONDITION,
                        f"Request to assign label to version {version} of model {name}, which is "
                        "not currently available for inference",
                    )
        return labels


def _raise_failures(outcomes: Mapping[str, Any]) -> None:
    failures = [
        f"{{{{name: {name} version: {outcome.version}}} due to error: {outcome.code.name}: "
        f"{outcome.message}}}, "
        for name, outcome in outcomes.items()
        if outcome.state is not State.AVAILABLE
    ]
    if failures:
        raise RequestError(
            Code.UNKNOWN,
            f"{len(failures)} model(s) did not become available: {{{''.join(failures)}}}",
        )
