"""Incremental updates: followed in a store, and shown by servables."""
