"""Publishes the state of a running trainer as cuts (docs/design/0012-online.md)."""
