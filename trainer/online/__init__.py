"""Online training: events in, cuts out (docs/design/0012-online.md)."""
