"""Stored rows and their pages, beside the words of docs/formats.md."""

from __future__ import annotations

import struct

import numpy as np
import pytest
from native_readers import native_readers

from hotrow import _native
from hotrow.errors import DataLossError, InvalidArgumentError

MASK = (1 << 64) - 1


def mix64(x):
    x = (x + 0x9E3779B97F4A7C15) & MASK
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9 & MASK
    x = (x ^ (x >> 27)) * 0x94D049BB133111EB & MASK
    return x ^ (x >> 31)


def random_rows(count, row_bytes, seed=0):
    rng = np.random.default_rng(seed)
    keys = rng.integers(-(2**63), 2**63, count, dtype=np.int64)
    return keys, rng.integers(0, 256, (count, row_bytes), dtype=np.uint8)


def commands_of(payload):
    """Returns the arguments of each command of a payload."""
    commands, at = [], 0

    def number(mark):
        nonlocal at
        end = payload.index(b"\r\n", at)
        assert payload[at : at + 1] == mark
        value, at = int(payload[at + 1 : end]), end + 2
        return value

    while at < len(payload):
        arguments = []
        for _ in range(number(b"*")):
            length = number(b"$")
            arguments.append(payload[at : at + length])
            at += length + 2
        commands.append(arguments)
    return commands


def test_keys_lie_where_the_formats_page_says():
    keys = random_rows(500, 1)[0]
    shards, pages = _native.page_of_keys(keys, 256, 1000)
    for key, shard, page in zip(keys.tolist(), shards, pages, strict=True):
        mixed = mix64(key & MASK)
        assert shard == mix64(mixed) % 256
        assert page == mixed * 1000 >> 64


def test_names_of_pages_begin_with_the_marker_of_their_shard():
    markers, slots = _native.store_names(256, 70)
    assert len(set(markers)) == 256
    assert [slot // 64 for slot in slots] == list(range(256))
    assert all(marker.startswith(b"hr{") and marker.endswith(b"}16") for marker in markers)
    names = _native.page_names(256, 70, 1, 100, 9)
    assert len(set(names)) == 100
    assert names[0] == markers[9] + b":010"
    assert names[99] == markers[9] + b":011Z"
    assert _native.page_names(256, 70, 1, 100, 9, first=90, count=5) == names[90:95]
    assert _native.page_names(256, 70, 1, 100, 9, first=90) == names[90:]
    assert _native.page_names(256, 70, 1, 100, 9, first=100) == []
    with pytest.raises(InvalidArgumentError, match="5 pages from number 96"):
        _native.page_names(256, 70, 1, 100, 9, first=96, count=5)
    with pytest.raises(InvalidArgumentError, match="shard 256"):
        _native.page_names(256, 70, 1, 100, 256)
    for shards in (0, 3, 2**40):
        with pytest.raises(InvalidArgumentError, match="a power of two from 1 to 4096"):
            _native.store_names(shards, 1)


def test_packed_pages_hold_every_record_once():
    keys, rows = random_rows(3000, 20)
    expected = {}
    shards, pages = _native.page_of_keys(keys, 8, 40)
    names = [_native.page_names(8, 7, 2, 40, shard) for shard in range(8)]
    for key, row, shard, page in zip(keys.tolist(), rows, shards, pages, strict=True):
        record = struct.pack("<qQ", key, 99) + row.tobytes()
        name = names[shard][page]
        expected[name] = expected.get(name, b"") + record
    written = {}
    for shard, count, payload in _native.pack_pages(keys, rows, 99, 8, 7, 2, 40):
        commands = commands_of(payload)
        assert len(commands) == count
        for command in commands:
            assert command[0] == b"MSET"
            assert set(command[1::2]) <= set(names[shard])
            written |= dict(zip(command[1::2], command[2::2], strict=True))
    assert written == expected
    some = _native.pack_pages(keys, rows, 99, 8, 7, 2, 40, only=[5, 2])
    assert [part[0] for part in some] == [2, 5]
    assert _native.pack_pages(keys, rows, 99, 8, 7, 2, 40, only=[]) == []
    assert _native.pack_pages(keys[:0], rows[:0], 99, 8, 7, 2, 40) == []


def test_wrong_arguments_of_pack_pages_are_refused():
    keys, rows = random_rows(10, 4)
    with pytest.raises(ValueError, match="rows: length 9, must be 10"):
        _native.pack_pages(keys, rows[:9], 1, 8, 1, 0, 4)
    with pytest.raises(InvalidArgumentError, match="0 pages"):
        _native.pack_pages(keys, rows, 1, 8, 1, 0, 0)
    with pytest.raises(InvalidArgumentError, match="shard 8 of a generation with 8"):
        _native.pack_pages(keys, rows, 1, 8, 1, 0, 4, only=[8])


def test_digests_of_pages_are_those_of_their_records():
    keys, rows = random_rows(2000, 24)
    of_records = _native.record_digests(keys, rows, 4)
    assert of_records.shape == (4, 3)
    assert of_records[:, 0].sum() == 2000
    for shard, _, payload in _native.pack_pages(keys, rows, 1, 4, 1, 0, 100):
        pages = {}
        for command in commands_of(payload):
            pages |= dict(zip(command[1::2], command[2::2], strict=True))
        values = [pages.get(name) for name in _native.page_names(4, 1, 0, 100, shard)]
        digest = _native.page_digest(values[:30], 24, 4, 1, 0, 100, shard)
        digest += _native.page_digest(values[30:], 24, 4, 1, 0, 100, shard, first_page=30)
        np.testing.assert_array_equal(digest, of_records[shard])
        with pytest.raises(DataLossError, match="belongs elsewhere"):
            _native.page_digest(values[::-1], 24, 4, 1, 0, 100, shard)
        full = max(value for value in values if value)
        number = values.index(full)
        with pytest.raises(DataLossError, match=r"page hr\{.*no whole number of records of 40"):
            _native.page_digest([full[:-1]], 24, 4, 1, 0, 100, shard, first_page=number)
        with pytest.raises(DataLossError, match="twice"):
            _native.page_digest([full + full], 24, 4, 1, 0, 100, shard, first_page=number)
        with pytest.raises(TypeError, match="bytes or None"):
            _native.page_digest(["text"], 24, 4, 1, 0, 100, shard)
    with pytest.raises(InvalidArgumentError, match="power of two"):
        _native.record_digests(keys, rows, 2**50)


def test_digest_sums_are_those_of_the_formats_page():
    key, row = 12345, b"some stored row."
    fingerprint = int(_native.fingerprint64([row])[0]) & MASK
    combined = mix64(mix64(key) ^ fingerprint)
    keys, rows = np.array([key]), np.frombuffer(row, np.uint8)[None]
    assert _native.record_digests(keys, rows, 1).tolist() == [
        [1, combined, mix64(combined ^ 0x5851F42D4C957F2D)]
    ]


@pytest.mark.parametrize(
    ("row_type", "row_bytes", "error"),
    [("float32", 64, 0), ("bfloat16", 32, 2**-9), ("float16", 32, 2**-12), ("int8", 20, 1 / 254)],
)
def test_weights_are_read_back_to_the_precision_of_their_row_type(row_type, row_bytes, error):
    weights = np.random.default_rng(0).uniform(-1, 1, (500, 16)).astype(np.float32)
    stored = _native.encode_rows(row_type, weights)
    assert stored.shape == (500, row_bytes)
    read = native_readers().decode_rows(row_type, 16, stored)
    assert np.abs(read - weights).max() <= error * 1.001
    np.testing.assert_array_equal(_native.encode_rows(row_type, read), stored)
    if row_type == "float16":
        np.testing.assert_array_equal(read, weights.astype(np.float16).astype(np.float32))


def test_rows_that_cannot_be_encoded_are_refused():
    with pytest.raises(InvalidArgumentError, match="row type float64; one of float32"):
        _native.encode_rows("float64", np.zeros((1, 2), np.float32))
    with pytest.raises(InvalidArgumentError, match="finite"):
        _native.encode_rows("int8", np.full((1, 2), np.nan, np.float32))
    with pytest.raises(ValueError, match="bytes of a row: length 9, must be 8"):
        native_readers().decode_rows("float32", 2, np.zeros((1, 9), np.uint8))
