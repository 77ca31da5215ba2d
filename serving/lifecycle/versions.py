"""Which versions of a model are on disk, and which of them should serve.

Versions are the children of its base path whose names are numbers; its policy chooses among them.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from hotrow.serving.monitoring.log_line import about

_LOG = logging.getLogger(__name__)

VersionPolicy = Any
"""TF Serving's message `FileSystemStoragePathSourceConfig.ServableVersionPolicy`."""

_NUMBER = re.compile(r"[0-9]{1,19}")
_MAX_VERSION = 2**63 - 1


class VersionSource:
    """The versions of one model that should serve now.

    Args:
        model: the model's name, for messages.
        base_path: the directory of the version directories.
        policy: latest (the default, with one version), all, or specific.
    """

    def __init__(self, model: str, base_path: Path, policy: VersionPolicy) -> None:
        self._model = model
        self._base_path = base_path
        self._policy = policy
        self._said: list[str] = []

    def find(self) -> dict[int, Path] | None:
        """Returns the versions and their directories.

        A name counts when it is a decimal int64, leading zeros allowed; everything else is
        ignored, so a version may be written under another name and renamed when it is whole.

        Returns:
            None when the base path cannot be read; empty when it holds no version.
        """
        saying: list[str] = []
        try:
            found = self._find(saying)
        except OSError as err:
            found = None
            saying.append(
                f"Could not find base path {self._base_path} for servable {self._model} with "
                f"error {err.strerror}"
            )
        for line in saying:
            if line not in self._said:
                _LOG.warning(line, extra=about(self._model))
        self._said = saying
        return found

    def _find(self, saying: list[str]) -> dict[int, Path]:
        if self._policy.WhichOneof("policy_choice") == "specific":
            found = self._specific(saying)
        else:
            found = self._on_disk(saying)
            if self._policy.WhichOneof("policy_choice") != "all":
                most = max(self._policy.latest.num_versions, 1)
                found = {number: found[number] for number in sorted(found)[-most:]}
        if not found:
            saying.append(
                f"No versions of servable {self._model} found under base path {self._base_path}. "
                "Did you forget to name your leaf directory as a number (eg. '/1/')?"
            )
        return found

    def _specific(self, saying: list[str]) -> dict[int, Path]:
        wanted = set(self._policy.specific.versions)
        found = {n: path for n in wanted if (path := self._base_path / str(n)).is_dir()}
        if len(found) < len(wanted):
            # Under another name, with leading zeros; or the base path is gone.
            others = self._on_disk(saying)
            found = {n: others[n] for n in wanted if n in others}
        saying.extend(
            f"Version {number} of servable {self._model}, which was requested to be served as a "
            "'specific' version in the servable's version policy, was not found in the file system"
            for number in sorted(wanted - set(found))
        )
        return found

    def _on_disk(self, saying: list[str]) -> dict[int, Path]:
        found: dict[int, Path] = {}
        for child in sorted(self._base_path.iterdir()):
            if not _NUMBER.fullmatch(child.name) or not child.is_dir():
                continue
            number = int(child.name)
            if number > _MAX_VERSION:
                continue
            if number in found:
                saying.append(
                    f"Duplicate version directories detected. Version {number} of servable "
                    f"{self._model} will be loaded from {child.name}, {found[number].name} will "
                    "be ignored."
                )
            found[number] = child
        return found


FindVersions = Callable[[], Mapping[int, Path] | None]
"""Returns the versions that should serve; None: unknown now, so nothing changes."""
