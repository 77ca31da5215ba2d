"""Training: data, models, the loop, checkpoints and exports."""
