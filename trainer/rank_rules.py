"""The settings that several ranks must agree on."""

from __future__ import annotations

import hashlib

from hotrow.config import RunConfig
from hotrow.errors import InvalidArgumentError
from hotrow.ops.ranks import Ranks
from hotrow.trainer.agreement import gathered


def check_ranks(config: RunConfig, ranks: Ranks) -> None:
    """Checks that these ranks can train this run together. A collective.

    Raises:
        InvalidArgumentError: the ranks have different configurations, their number is not
            `parallel.workers`, or a batch has fewer rows than there are ranks with own rows.
    """
    workers = config.parallel.workers
    if workers != ranks.size:
        raise InvalidArgumentError(
            f"parallel.workers is {workers}, but {ranks.size} ranks train; start them with "
            f"`platform train --workers {workers}`, or `mpiexec -n {workers} platform train`"
        )
    if ranks.size == 1:
        return
    own = hashlib.sha256(config.to_yaml().encode()).hexdigest()
    sections = gathered(ranks, "configuration", own)
    for rank, other in enumerate(sections):
        if other != sections[0]:
            raise InvalidArgumentError(
                f"the configuration of rank {rank} differs from that of rank 0; start all ranks "
                "with the same file and the same options"
            )
    if config.data.order == "sharded" and config.data.batch_size < ranks.size:
        raise InvalidArgumentError(
            f"data.order: sharded: data.batch_size is {config.data.batch_size}; each of "
            f"{ranks.size} ranks reads at least one row of a batch, so it must be at least "
            f"{ranks.size}"
        )
