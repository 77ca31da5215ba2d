"""Configuration files: protobuf messages in text form."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from google.protobuf import text_format
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import Message

from hotrow.errors import InvalidArgumentError, NotFoundError

M = TypeVar("M", bound=Message)


def read_text_proto(
    path: str, message: M, log: Callable[[str], None], types: DescriptorPool | None = None
) -> M:
    """Fills an empty message from a file and returns it.

    Args:
        path: of the file.
        message: of the type that the file holds.
        log: takes the line that says what is wrong with the text.
        types: of messages in `Any`; None: those that are known by their own names.

    Raises:
        NotFoundError: the file cannot be read.
        InvalidArgumentError: it is not such a message; unknown fields are refused, too.
    """
    try:
        text = Path(path).read_text(encoding="utf-8")
    except OSError as err:
        raise NotFoundError(f"{path}; {err.strerror}") from err
    except UnicodeDecodeError as err:
        log(f"{path} is no UTF-8 text: {err}")
        raise InvalidArgumentError(f"Invalid protobuf file: '{path}'") from err
    try:
        text_format.Parse(text, message, descriptor_pool=types)
    except text_format.ParseError as err:
        log(f"Error parsing text-format {message.DESCRIPTOR.full_name}: {err}")
        raise InvalidArgumentError(f"Invalid protobuf file: '{path}'") from err
    return message
