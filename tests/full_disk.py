"""A limit on the size of a file, in place of a full disk: EFBIG in place of ENOSPC."""

from __future__ import annotations

import contextlib
import resource
from collections.abc import Iterator

_FREE = resource.RLIM_INFINITY


@contextlib.contextmanager
def full_disk(most_bytes: int) -> Iterator[None]:
    """Lets no file of this process grow beyond a size."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (most_bytes, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def fill_disk_of(process: int, most_bytes: int) -> None:
    """Lets no file of a process grow beyond a size."""
    resource.prlimit(process, resource.RLIMIT_FSIZE, (most_bytes, _FREE))


def free_disk_of(process: int) -> None:
    """Ends `fill_disk_of`."""
    resource.prlimit(process, resource.RLIMIT_FSIZE, (_FREE, _FREE))
