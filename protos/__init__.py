"""Our .proto files and the modules made from them by `make protos`."""
