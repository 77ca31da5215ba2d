"""Control records in Redis: two hashes, each changed by a function (docs/formats.md).

Leases of readers lie in a hash of their own, so that an ACL lets servers change nothing else.
"""

from __future__ import annotations

import binascii
import contextlib
import time
from collections.abc import Sequence
from typing import Any

from hotrow.errors import PermissionDeniedError
from hotrow.store.redis.client import RedisClient
from hotrow.store.redis.functions import SWAP, SWAP_LEASE, ReaderFunctionMissingError
from hotrow.store.redis.parcel import Parcel, packed
from hotrow.store.redis.topology import SLOTS
from hotrow.store.row_store import Change
from hotrow.store.spec import FIRST_MS

KEY = "hotrow:{hr}"
SLOT = binascii.crc_hqx(b"hr", 0) % SLOTS  # of the tag in KEY
READERS_KEY = f"{KEY}:readers"
_LEASE = "lease/"
_COUNTER = "number"
_WRITTEN, _ALREADY = 1, 2


class RedisRecords:
    """See `hotrow.store.row_store.Records`."""

    def __init__(self, client: RedisClient) -> None:
        self._client = client
        self._is_exporter = False

    def get(self, name: str) -> str | None:
        """Returns the text of a record; None: there is none."""
        if name.startswith(_LEASE):
            # A user with the rights of an earlier version has no access there.
            with contextlib.suppress(PermissionDeniedError):
                text = self._get(READERS_KEY, name)
                if text is not None:
                    return text
        return self._get(KEY, name)

    def swap(self, name: str, expected: str | None, text: str | None) -> bool:
        """Writes a record if it is as expected; see the contract."""
        if name.startswith(_LEASE):
            return self._swap_lease(name, expected, text)
        return self.swap_all([(name, expected, text)])

    def swap_all(self, changes: Sequence[Change]) -> bool:
        """Writes records if all are as expected; see the contract. None is a lease of a reader."""
        if not self._is_exporter:
            self._client.load_reader_function()
            self._is_exporter = True
        return self._swap(SWAP, KEY, changes)

    def _swap_lease(self, name: str, expected: str | None, text: str | None) -> bool:
        """Writes a lease, where earlier versions do if their exporters alone have been here."""
        there = expected
        try:
            if expected is not None and self._get(READERS_KEY, name) is None:
                if text is None:
                    return self._swap(SWAP, KEY, [(name, expected, text)])
                if self._get(KEY, name) != expected:
                    return False
                there = None  # it moves
            return self._swap(SWAP_LEASE, READERS_KEY, [(name, there, text)])
        except (ReaderFunctionMissingError, PermissionDeniedError) as err:
            try:
                return self._swap(SWAP, KEY, [(name, expected, text)])
            except PermissionDeniedError:
                raise err from None

    def _get(self, key: str, name: str) -> str | None:
        text = self._client.call(SLOT, "HGET", key, name)
        return None if text is None else str(text.decode())

    def _swap(self, function: str, key: str, changes: Sequence[Change]) -> bool:
        arguments: list[str | int | bytes] = []
        for name, *texts in changes:
            arguments += [name, *("" if text is None else f"={text}" for text in texts)]
        answer, uncertain = self._client.call_once_or_more(
            SLOT, "FCALL", function, 1, key, *arguments
        )
        # After a lost answer, "already so" may be the result of the earlier try.
        return answer == _WRITTEN or (answer == _ALREADY and uncertain)

    def names(self, prefix: str) -> list[str]:
        """Returns the names that begin with `prefix`, sorted."""
        keys = [KEY]
        if _LEASE.startswith(prefix) or prefix.startswith(_LEASE):
            keys.append(READERS_KEY)
        found = {name.decode() for key in keys for name in self._client.call(SLOT, "HKEYS", key)}
        return sorted(name for name in found if name.startswith(prefix))

    def texts(self, prefix: str) -> dict[str, str]:
        """Returns the texts of records by name, with one call for all; see the contract."""
        names = self.names(prefix)
        if prefix.startswith(_LEASE):
            found = [self.get(name) for name in names]  # they may lie in either hash
        else:
            found = self._get_all(names)
        return {name: text for name, text in zip(names, found, strict=True) if text is not None}

    def _get_all(self, names: Sequence[str]) -> list[str | None]:
        found: list[str | None] = [None] * len(names)

        def take(number: int, answers: list[Any]) -> None:
            found[number] = None if answers[0] is None else str(answers[0].decode())

        self._client.deliver([Parcel(SLOT, 1, packed("HGET", KEY, name)) for name in names], take)
        return found

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
