"""The admin port: reloads and metrics, apart from the ports of clients."""
