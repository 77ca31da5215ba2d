"""Control records in Redis: one hash, changed by a function (docs/formats.md)."""

from __future__ import annotations

import binascii
import secrets
from collections.abc import Sequence

from hotrow.store.redis.client import RedisClient
from hotrow.store.redis.functions import SWAP
from hotrow.store.redis.topology import SLOTS
from hotrow.store.row_store import Change

KEY = "hotrow:{hr}"
_COUNTER = "number"
# Two digits in names of keys (base 64), with room for later numbers.
_FIRST_NUMBERS = 4000
_WRITTEN, _ALREADY = 1, 2


class RedisRecords:
    """See `hotrow.store.row_store.Records`."""

    def __init__(self, client: RedisClient) -> None:
        self._client = client
        self._slot = binascii.crc_hqx(b"hr", 0) % SLOTS  # of the tag in KEY

    def get(self, name: str) -> str | None:
        """Returns the text of a record; None: there is none."""
        text = self._client.call(self._slot, "HGET", KEY, name)
        return None if text is None else str(text.decode())

    def swap(self, name: str, expected: str | None, text: str | None) -> bool:
        """Writes a record if it is as expected; see the contract."""
        return self.swap_all([(name, expected, text)])

    def swap_all(self, changes: Sequence[Change]) -> bool:
        """Writes records if all are as expected; see the contract."""
        arguments: list[str | int | bytes] = []
        for name, *texts in changes:
            arguments += [name, *("" if text is None else f"={text}" for text in texts)]
        answer, uncertain = self._client.call_once_or_more(
            self._slot, "FCALL", SWAP, 1, KEY, *arguments
        )
        # After a lost answer, "already so" may be the result of the earlier try.
        return answer == _WRITTEN or (answer == _ALREADY and uncertain)

    def names(self, prefix: str) -> list[str]:
        """Returns the names that begin with `prefix`, sorted."""
        names = [name.decode() for name in self._client.call(self._slot, "HKEYS", KEY)]
        return sorted(name for name in names if name.startswith(prefix))

    def next_number(self) -> int:
        """Returns a number that this store never returned before.

        The first number is random below 4,000. A store that lost everything while servers still run
        should not give the numbers of their generations to others.
        """
        first = secrets.randbelow(_FIRST_NUMBERS)
        self._client.call(self._slot, "HSETNX", KEY, _COUNTER, first)
        return int(self._client.call(self._slot, "HINCRBY", KEY, _COUNTER, 1))

    def now_ms(self) -> int:
        """Returns the clock of the server that holds the records, in milliseconds."""
        seconds, microseconds = self._client.call(self._slot, "TIME")
        return int(seconds) * 1000 + int(microseconds) // 1000
