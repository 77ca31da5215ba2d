"""Ways to damage a run's checkpoints at random."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import struct
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")


from hotrow import _native
from hotrow.sealed_directory import MANIFEST, seal_of

# What stands in for a number, a name or a list somewhere in a manifest.
_ODD: tuple[Any, ...] = (
    None, True, False, 0, 1, -1, 2, 7, 2**31, 2**32, 2**63, -(2**63), 2**64, 10**30, 0.5, -0.0,
    1e308, "", "a", "0", "..", "../../etc/passwd", "t-00000.safetensors", "\x00", "\ud800", "é",
    [], [0], [None], ["step-00000005"], {}, {"a": 1}, [[[]]],
)  # fmt: skip


def files_of(root: Path) -> list[Path]:
    return sorted(path for path in root.rglob("*") if path.is_file())


def _flip_bits(root: Path, random: Random) -> str:
    path = random.choice(files_of(root))
    content = bytearray(path.read_bytes())
    if not content:
        return "nothing"
    for _ in range(random.choice((1, 1, 1, 2, 50))):
        content[random.randrange(len(content))] ^= 1 << random.randrange(8)
    path.write_bytes(content)
    return f"flip bits of {path.name}"


def _cut(root: Path, random: Random) -> str:
    path = random.choice(files_of(root))
    size = path.stat().st_size
    left = random.choice((0, 1, size // 2, max(0, size - 1), random.randint(0, size)))
    path.write_bytes(path.read_bytes()[:left])
    return f"cut {path.name} to {left}"


def _extend(root: Path, random: Random) -> str:
    path = random.choice(files_of(root))
    more = random.choice((b"\0", b" ", b"\n", random.randbytes(8), b"}", path.read_bytes()))
    path.write_bytes(path.read_bytes() + more)
    return f"extend {path.name}"


def _swap(root: Path, random: Random) -> str:
    one, two = random.choice(files_of(root)), random.choice(files_of(root))
    first, second = one.read_bytes(), two.read_bytes()
    one.write_bytes(second)
    two.write_bytes(first)
    return f"swap {one.relative_to(root)} and {two.relative_to(root)}"


def _copy_over(root: Path, random: Random) -> str:
    one, two = random.choice(files_of(root)), random.choice(files_of(root))
    one.write_bytes(two.read_bytes())
    return f"{two.relative_to(root)} over {one.relative_to(root)}"


def _remove(root: Path, random: Random) -> str:
    path = random.choice(files_of(root))
    path.unlink()
    if random.random() < 0.3:
        path.mkdir()
        return f"a directory instead of {path.name}"
    return f"remove {path.name}"


def _move_checkpoint(root: Path, random: Random) -> str:
    steps = sorted(root.iterdir())
    path = random.choice(steps)
    what = random.randrange(4)
    if what == 0:
        shutil.rmtree(path)
        return f"remove {path.name}"
    if what == 1:
        if not (root / "step-00000099").exists():
            path.rename(root / "step-00000099")
        return f"rename {path.name}"
    if what == 2:
        target = root / random.choice(("step-00000099", "step-00000001", "step-x"))
        if target.exists():  # an earlier move made it
            return "nothing"
        shutil.copytree(path, target)
        return f"copy {path.name}"
    other = random.choice(steps)
    if other == path:
        return "nothing"
    path.rename(root / "x")
    other.rename(path)
    (root / "x").rename(other)
    return f"exchange {path.name} and {other.name}"


def _edit_unsealed(root: Path, random: Random) -> str:
    path = random.choice(sorted(root.iterdir())) / MANIFEST
    try:
        facts = json.loads(path.read_bytes())
    except (OSError, ValueError):  # another damage came before
        return "nothing"
    what = _change_value(facts, random)
    path.write_text(json.dumps(facts))
    return f"unsealed {what}"


def _change_value(facts: Any, random: Random) -> str:
    """Replaces, removes or doubles one value somewhere in a JSON value."""
    places: list[tuple[Any, Any, str]] = []

    def walk(value: Any, where: str) -> None:
        items = value.items() if isinstance(value, dict) else enumerate(value)
        for key, child in items:
            places.append((value, key, f"{where}/{key}"))
            if isinstance(child, dict | list):
                walk(child, f"{where}/{key}")

    walk(facts, "")
    # The long list of the random generators' words is one of many places.
    shallow = [place for place in places if place[2].count("/") < 4] or places
    holder, key, where = random.choice(shallow if random.random() < 0.5 else places)
    what = random.randrange(5)
    if what == 0:
        del holder[key]
        return f"del {where}"
    if what == 1 and isinstance(holder[key], int):
        holder[key] += random.choice((-1, 1, 1000))
    elif what == 2 and isinstance(holder, dict):
        holder[random.choice(("", "x", *map(str, holder)))] = holder[key]
    else:
        holder[key] = random.choice((*_ODD, random.choice(places)[0]))
        with contextlib.suppress(ValueError):
            json.dumps(facts)
            return f"{where} = {str(holder[key])[:60]}"
        holder[key] = None  # it contained itself
    return f"{where} = {str(holder[key])[:60]}"


def _change_array(path: Path, random: Random) -> str:
    """Changes the header or the values of a safetensors file; its lengths may stop fitting."""
    content = path.read_bytes()
    (length,) = struct.unpack("<Q", content[:8])
    header: dict[str, Any] = json.loads(content[8 : 8 + length])
    data = bytearray(content[8 + length :])
    if not header:
        return "nothing"
    name = random.choice(sorted(header))
    tensor = header[name]
    begin, end = tensor["data_offsets"]
    what = random.randrange(8)
    said = f"{path.name}:{name} {what}"
    if what == 0:
        del header[name]
    elif what == 1:
        header[random.choice(("x", "keys", *header))] = header.pop(name)
    elif what == 2:
        tensor["dtype"] = random.choice(
            ("U8", "I8", "I32", "U32", "I64", "U64", "F32", "F64", "BF16", "BOOL", "X", 3)
        )
    elif what == 3:
        tensor["shape"] = random.choice(
            (
                [],
                [0],
                [-1],
                [1],
                [2**62, 2],
                [end - begin],
                *([s, *tensor["shape"]] for s in (0, 1)),
            )
        )
    elif what == 4:
        tensor["data_offsets"] = random.choice(
            ([0, 0], [begin, end - 1], [end, begin], [-1, end], [begin, 2**63], [0, end])
        )
    elif what == 5 and tensor["shape"]:  # one row fewer of one array, lengths fitting
        rows = max(1, tensor["shape"][0])
        size = (end - begin) // rows
        del data[end - size : end]
        for other in header.values():
            other["data_offsets"] = [
                o - size if o >= end and o > 0 else o for o in other["data_offsets"]
            ]
        tensor["shape"][0] = rows - 1
    elif end > begin:
        special = (0, 1, 2**31 - 1, 2**31, 2**32 - 1, 2**63 - 1, 2**63, 2**64 - 1, 255)
        for _ in range(random.choice((1, 1, 5))):
            at = random.randrange(begin, end, 4) if end - begin >= 4 else begin
            value = struct.pack("<Q", random.choice(special))[: random.choice((1, 4, 8))]
            if random.random() < 0.3:  # another row's value
                other = random.randrange(begin, end, 4) if end - begin >= 4 else begin
                value = bytes(data[other : other + 8])
            value = value[: end - at]
            data[at : at + len(value)] = value
        said += " values"
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)
    return said


def _change_state(path: Path, random: Random) -> str:
    """Changes bytes of a table's state and makes its own checksum right."""
    content = bytearray(path.read_bytes())[:-8]
    special = (0, 1, 2**31, 2**32 - 1, 2**64 - 1, random.getrandbits(64))
    for _ in range(random.choice((1, 1, 3))):
        at = random.randrange(0, len(content), random.choice((1, 4)))
        value = struct.pack("<Q", random.choice(special))[: random.choice((1, 4, 8))]
        content[at : at + len(value)] = value
    if random.random() < 0.2:
        content = content[: random.randrange(len(content))]
    (checksum,) = _native.fingerprint64([bytes(content)])
    path.write_bytes(bytes(content) + struct.pack("<q", checksum))
    return f"state {path.name}"


def damage_sealed(root: Path, random: Random) -> str:
    """Changes what checksums protect and makes them right."""
    directory = random.choice(sorted(root.iterdir()))
    manifest = directory / MANIFEST
    facts = json.loads(manifest.read_bytes())
    del facts["seal"]
    if random.random() < 0.4:
        said = _change_value(facts, random)
    else:
        path = random.choice([p for p in files_of(directory) if p.name != MANIFEST])
        if path.suffix == ".json":
            value = json.loads(path.read_bytes())
            said = f"{path.name}{_change_value(value, random)}"
            path.write_text(json.dumps(value))
        elif path.suffix == ".state":
            said = _change_state(path, random)
        elif path.suffix == ".safetensors" and random.random() < 0.9:
            said = _change_array(path, random)
        else:
            said = _flip_bits_of(path, random)
        name = path.relative_to(directory).as_posix()
        content = path.read_bytes()
        facts["files"][name] = {
            "sha256": hashlib.sha256(content).hexdigest(),
            "bytes": len(content),
        }
    seal = _seal(manifest, facts)
    if random.random() < 0.9:
        _seal_above(root, directory.name, seal)
    return f"resealed {directory.name} {said}"


def _flip_bits_of(path: Path, random: Random) -> str:
    content = bytearray(path.read_bytes())
    for _ in range(random.choice((1, 3))):
        content[random.randrange(len(content))] ^= 1 << random.randrange(8)
    path.write_bytes(content)
    return f"flip bits of {path.name}"


def _seal(manifest: Path, facts: Any) -> str:
    try:
        seal = seal_of(facts)
    except (TypeError, ValueError):  # keys of several types do not sort
        seal = ""
    manifest.write_text(json.dumps({**facts, "seal": seal}))
    return seal


_NOT_A_LIST = (AttributeError, IndexError, KeyError, TypeError, ValueError)


def _seal_above(root: Path, name: str, seal: str) -> None:
    """Lets the increments above a changed checkpoint expect its new seal."""
    for directory in sorted(root.iterdir()):
        manifest = directory / MANIFEST
        facts = json.loads(manifest.read_bytes())
        del facts["seal"]
        with contextlib.suppress(*_NOT_A_LIST):
            facts["parent_seals"][facts["parents"].index(name)] = seal
            seal_here = _seal(manifest, facts)
            if directory.name != name:
                _seal_above_once(root, directory.name, seal_here)


def _seal_above_once(root: Path, name: str, seal: str) -> None:
    for directory in sorted(root.iterdir()):
        if directory.name <= name:
            continue
        manifest = directory / MANIFEST
        facts = json.loads(manifest.read_bytes())
        del facts["seal"]
        with contextlib.suppress(*_NOT_A_LIST):
            facts["parent_seals"][facts["parents"].index(name)] = seal
            _seal(manifest, facts)


RAW_DAMAGE: tuple[Callable[[Path, Random], str], ...] = (
    _flip_bits, _cut, _extend, _swap, _copy_over, _remove, _move_checkpoint, _edit_unsealed,
)  # fmt: skip
