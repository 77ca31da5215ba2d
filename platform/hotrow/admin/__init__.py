"""A port for operators: gRPC, and a page of metrics over HTTP, with tokens and TLS."""
