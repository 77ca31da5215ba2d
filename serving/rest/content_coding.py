"""Compressed bodies: gzip and zstd, of requests and, when a client asks for it, of replies."""

from __future__ import annotations

import gzip
import io
import zlib
from collections.abc import Callable

from hotrow.serving.rest.body_limit import BodyTooLongError
from hotrow.serving.wire.status import invalid

# A smaller reply is not worth it.
_LEAST_REPLY_BYTES = 1024
# Level of gzip; a higher one costs much time and saves little.
_LEVEL = 1


def decoded(body: bytes, coding: str, most_bytes: int) -> bytes:
    """Returns a request's body uncompressed; unchanged for an unknown coding, as TF Serving does.

    Args:
        body: as sent.
        coding: the Content-Encoding.
        most_bytes: limit of the uncompressed body.

    Raises:
        RequestError: INVALID_ARGUMENT when the body is not in this coding.
        BodyTooLongError: it has more bytes than allowed.
    """
    coding = coding.strip().lower()
    if coding not in ("gzip", "zstd"):
        return body
    try:
        plain = _gunzipped(body, most_bytes) if coding == "gzip" else _unzstd(body, most_bytes)
    except (OSError, EOFError, zlib.error) as err:
        name = "gzipped" if coding == "gzip" else coding
        raise invalid(f"Failed to uncompress the {name} body") from err
    if len(plain) > most_bytes:
        raise BodyTooLongError(most_bytes)
    return plain


def _gunzipped(body: bytes, most_bytes: int) -> bytes:
    with gzip.GzipFile(fileobj=io.BytesIO(body)) as stream:
        return stream.read(most_bytes + 1)


def _zstd(body: bytes) -> bytes:
    # Few clients ask for it, and the import takes time and memory.
    import pyarrow

    compressed: bytes = pyarrow.compress(body, "zstd", asbytes=True)
    return compressed


def _unzstd(body: bytes, most_bytes: int) -> bytes:
    import pyarrow

    with pyarrow.CompressedInputStream(pyarrow.BufferReader(body), "zstd") as stream:
        plain: bytes = stream.read(most_bytes + 1)
        return plain


# The better one first.
_REPLY_CODINGS: dict[str, Callable[[bytes], bytes]] = {
    "zstd": _zstd,
    "gzip": lambda body: gzip.compress(body, _LEVEL),
}


def encoded(body: bytes, accepted: str) -> tuple[bytes, str]:
    """Returns a reply's body and its Content-Encoding, "" for none.

    Args:
        body: uncompressed.
        accepted: the request's Accept-Encoding.
    """
    if len(body) < _LEAST_REPLY_BYTES or not accepted:
        return body, ""
    weights = _weights(accepted)
    best = max(_REPLY_CODINGS, key=lambda coding: weights.get(coding, 0.0))
    if weights.get(best, 0.0) <= 0:
        return body, ""
    return _REPLY_CODINGS[best](body), best


def _weights(accepted: str) -> dict[str, float]:
    """Returns the client's weight (q) of each coding that it names; `*` is no wildcard here."""
    weights = {}
    for part in accepted.split(","):
        coding, _, parameter = part.partition(";")
        name, _, value = parameter.partition("=")
        try:
            weights[coding.strip().lower()] = float(value) if name.strip() == "q" else 1.0
        except ValueError:
            continue
    return weights
