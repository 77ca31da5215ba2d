"""Which versions are loaded and which serve."""
