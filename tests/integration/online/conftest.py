"""Servers for trainers that publish to them, and trainers for operators."""

from integration.online.operated import operated
from integration.serving.conftest import start_server

__all__ = ["operated", "start_server"]
