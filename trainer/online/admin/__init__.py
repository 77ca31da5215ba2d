"""The admin service of a trainer that learns online, and its page of metrics."""
