"""Workers of embedding_step.py: one system a module, each run in its own environment."""
