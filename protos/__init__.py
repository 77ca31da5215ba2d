"""Our .proto files and the modules made from them; none is needed yet."""
