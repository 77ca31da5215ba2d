"""Serving: wire formats, configuration, data plane, life cycle, updates, monitoring and REST."""
