"""Where a trainer answers: `RUN_DIR`, `HOST:PORT`, or what its store says."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from hotrow.admin.address import split_address
from hotrow.admin.run_address import read_run_address
from hotrow.cli.trainer_client import TrainerAccess, TrainerClient
from hotrow.errors import InvalidArgumentError, UnavailableError
from hotrow.store.process_identity import has_ended


@dataclass(frozen=True)
class TrainerPlace:
    """Where a trainer answers.

    Attributes:
        address: `host:port`.
        tls: whether it is known to use TLS.
        run_dir: directory of its run; None: it was not given.
    """

    address: str
    tls: bool = False
    run_dir: Path | None = None

    def client(self, access: TrainerAccess) -> TrainerClient:
        """Returns a client."""
        return TrainerClient(self.address, access, self.tls)


def check_place(place: str) -> None:
    """Checks that a place is a directory or an address.

    Raises:
        InvalidArgumentError: it is neither.
    """
    if Path(place).is_dir():
        return
    try:
        host, _ = split_address(place)
    except ValueError:
        host = ""
    if not host:
        raise InvalidArgumentError(
            f"{place} is neither the directory of a run nor HOST:PORT of a trainer's online.admin"
        )


def find_trainer(place: str) -> TrainerPlace:
    """Returns where a trainer answers.

    Args:
        place: `RUN_DIR` or `HOST:PORT`; a directory of that name wins.

    Raises:
        NotFoundError: the run has no trainer with an admin service.
        DataLossError: the run's file with the address is damaged.
        UnavailableError: the run's trainer has ended without a word.
        InvalidArgumentError: it is neither a directory nor an address.
    """
    check_place(place)
    run_dir = Path(place)
    if not run_dir.is_dir():
        return TrainerPlace(place)
    found = read_run_address(run_dir)
    if has_ended(found.process):
        raise UnavailableError(
            f"the trainer of {run_dir} was killed: its process has ended; it goes on from its last "
            "checkpoint with `platform train --online --resume`"
        )
    return TrainerPlace(found.address, found.tls, run_dir)
