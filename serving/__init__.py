"""Serving: wire (gRPC, REST), service, catalog, lifecycle, servable and lookup binding, apart."""
