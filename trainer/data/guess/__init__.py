"""Guesses from a file's first lines: format, delimiter, header, label, configuration."""
