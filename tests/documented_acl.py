"""The users of Redis as docs/redis.md has them."""

from __future__ import annotations

import re
from pathlib import Path

_PAGE = Path(__file__).resolve().parents[1] / "docs" / "redis.md"


def acl_rule(user: str) -> str:
    """Returns the rule of a user, with the password `sesame`."""
    rule = re.search(rf"^user {user} .*$", _PAGE.read_text(), re.MULTILINE)
    assert rule is not None
    return rule.group().removeprefix("user ").replace(">PASSWORD", ">sesame")
