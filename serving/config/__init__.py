"""Flags and configuration files: read, and checked."""
