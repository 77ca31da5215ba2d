"""Embedding ops: tables, the TensorFlow ops over them, and the Keras layer."""
