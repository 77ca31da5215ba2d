"""Starts of a server that fail because of flags or their files; they need no process."""

from __future__ import annotations

from pathlib import Path

import pytest
from free_ports import free_port
from logged_lines import logged_lines

from hotrow.cli.serve import command, read_options
from hotrow.errors import HotrowError
from hotrow.serving.server import check_listeners, read_files


def refused_start(model: str, base_path: Path | str, *flags: str) -> list[str]:
    """Returns the error that `platform serve` prints before it ends with 255.

    As the process does, it reads the flags, then the files that they name, then checks socket and
    port. test_process.py checks the same line, and the exit code, of a real process.
    """
    given = [f"--model_name={model}", f"--model_base_path={base_path}", f"--port={free_port()}"]
    with logged_lines() as log, pytest.raises(HotrowError) as refused:
        context = command.make_context("serve", [*given, *flags])
        inner = {"control_folder", "lifeline"}
        options = read_options(**{n: v for n, v in context.params.items() if n not in inner})
        check_listeners(options, read_files(options, None).transport)
    return [*log, " ".join(str(refused.value).split())]
