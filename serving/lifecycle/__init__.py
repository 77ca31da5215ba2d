"""Which versions are loaded, and which of them serve."""
