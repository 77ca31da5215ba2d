"""What a data file is, from its first lines: format, delimiter, header, label, configuration."""
