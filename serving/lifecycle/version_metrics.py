"""Metrics of the states that versions are in."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from hotrow.serving.lifecycle.model_lifecycle import State, VersionStatus
from hotrow.serving.monitoring.metrics import Family, Kind


def version_families(models: Mapping[str, Sequence[VersionStatus]]) -> list[Family]:
    """Returns gauges that are 1 for the state of each version, and for those given up.

    Args:
        models: the versions of each model.
    """
    states = Family("hotrow_model_version_state", Kind.GAUGE, ("model_name", "version", "state"))
    failed = Family("hotrow_model_version_failed", Kind.GAUGE, ("model_name", "version", "code"))
    for model, versions in models.items():
        for status in versions:
            states.add((model, str(status.version), State(status.state).name))
            if status.given_up:
                failed.add((model, str(status.version), status.code.name))
    return [states, failed]
