"""`admin.json` in a run's directory: where the trainer's admin service answers."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path

from hotrow.atomic_text import write_atomically
from hotrow.errors import DataLossError, NotFoundError

ADMIN_FILE = "admin.json"


@dataclass(frozen=True)
class RunAddress:
    """Where a trainer answers.

    Attributes:
        address: `host:port`.
        tls: whether it takes TLS connections only.
        token: whether calls need a token.
        process: identity of its process (`hotrow.store.process_identity`).
    """

    address: str
    tls: bool
    token: bool
    process: str

    def write(self, run_dir: Path) -> None:
        """Writes the file atomically.

        Raises:
            OSError: the disk is full or refuses.
        """
        write_atomically(run_dir / ADMIN_FILE, json.dumps(asdict(self), indent=1) + "\n")


def read_run_address(run_dir: Path) -> RunAddress:
    """Returns where the trainer of a run answers.

    Raises:
        NotFoundError: no trainer with an admin service runs there, or it has ended in order.
        DataLossError: the file is damaged.
    """
    path = run_dir / ADMIN_FILE
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        found = RunAddress(**content)
    except OSError as err:
        raise NotFoundError(
            f"{run_dir} has no {ADMIN_FILE}: no trainer with online.admin runs in it; give the "
            "directory of a run that learns online, or HOST:PORT"
        ) from err
    except (ValueError, TypeError) as err:
        raise DataLossError(f"{path} is damaged: {err}; give HOST:PORT instead") from err
    return found
