"""Distinguishes an error that a service answers from one of the way to it."""

from __future__ import annotations

ANSWERED = "x-hotrow-answered"
"""Trailing metadata of errors of an admin service: both kinds may be UNAVAILABLE."""
