"""Control records in Redis: one hash, changed by a function (docs/formats.md)."""

from __future__ import annotations

import binascii
import time
from collections.abc import Sequence

from hotrow.store.redis.client import RedisClient
from hotrow.store.redis.functions import SWAP
from hotrow.store.redis.topology import SLOTS
from hotrow.store.row_store import Change
from hotrow.store.spec import FIRST_MS

KEY = "hotrow:{hr}"
SLOT = binascii.crc_hqx(b"hr", 0) % SLOTS  # of the tag in KEY
_COUNTER = "number"
_WRITTEN, _ALREADY = 1, 2


class RedisRecords:
    """See `hotrow.store.row_store.Records`."""

    def __init__(self, client: RedisClient) -> None:
        self._client = client

    def get(self, name: str) -> str | None:
        """Returns the text of a record; None: there is none."""
        text = self._client.call(SLOT, "HGET", KEY, name)
        return None if text is None else str(text.decode())

    def swap(self, name: str, expected: str | None, text: str | None) -> bool:
        """Writes a record if it is as expected; see the contract."""
        return self.swap_all([(name, expected, text)])

    def swap_all(self, changes: Sequence[Change]) -> bool:
        """Writes records if all are as expected; see the contract."""
        arguments: list[str | int | bytes] = []
        for name, *texts in changes:
            arguments += [name, *("" if text is None else f"={text}" for text in texts)]
        answer, uncertain = self._client.call_once_or_more(SLOT, "FCALL", SWAP, 1, KEY, *arguments)
        # After a lost answer, "already so" may be the result of the earlier try.
        return answer == _WRITTEN or (answer == _ALREADY and uncertain)

    def names(self, prefix: str) -> list[str]:
        """Returns the names that begin with `prefix`, sorted."""
        names = [name.decode() for name in self._client.call(SLOT, "HKEYS", KEY)]
        return sorted(name for name in names if name.startswith(prefix))

    def next_number(self) -> int:
        """Returns a number that this store never returned before, also if it has forgotten that.

        A store that went back in time, or lost everything, while servers still run must not give
        the numbers of their generations to others. So a number is at least the time, which takes
        six digits in names of keys (base 64) until 2028, then seven.
        """
        while True:
            text = self.get(_COUNTER)
            now_ms = max(self.now_ms(), time.time_ns() // 1_000_000)
            number = max(int(text or 0) + 1, now_ms - FIRST_MS)
            if self.swap(_COUNTER, text, str(number)):
                return number

    def now_ms(self) -> int:
        """Returns the clock of the server that holds the records, in milliseconds."""
        seconds, microseconds = self._client.call(SLOT, "TIME")
        return int(seconds) * 1000 + int(microseconds) // 1000
