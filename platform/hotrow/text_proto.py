"""Configuration files: protobuf messages in text form."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TypeVar

from google.protobuf import text_format
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import Message

from hotrow.errors import InvalidArgumentError, NotFoundError

_LOG = logging.getLogger(__name__)

M = TypeVar("M", bound=Message)


def read_text_proto(path: str, message: M, types: DescriptorPool | None = None) -> M:
    """Fills an empty message from a file and returns it.

    Args:
        path: of the file.
        message: of the type that the file holds.
        types: of messages in `Any`; None: types registered under their own names.

    Raises:
        NotFoundError: the file cannot be read.
        InvalidArgumentError: it is not such a message; unknown fields are refused, too.
    """
    try:
        text = Path(path).read_text(encoding="utf-8")
    except OSError as err:
        raise NotFoundError(f"{path}; {err.strerror}") from err
    except UnicodeDecodeError as err:
        _LOG.error(f"{path} is no UTF-8 text: {err}")
        raise InvalidArgumentError(f"Invalid protobuf file: '{path}'") from err
    try:
        text_format.Parse(text, message, descriptor_pool=types)
    except text_format.ParseError as err:
        _LOG.error(f"Error parsing text-format {message.DESCRIPTOR.full_name}: {err}")
        raise InvalidArgumentError(f"Invalid protobuf file: '{path}'") from err
    return message
