"""Scores a file with the trained model itself: offline_scores.py RUN_DIR FILE prints JSON."""

from __future__ import annotations

import json
import sys

import numpy as np
import tensorflow as tf

from hotrow.trainer.evaluation import predict_file
from hotrow.trainer.train_step import make_forward
from hotrow.trainer.trained_run import load_run


def main(run_dir: str, path: str) -> None:
    """Prints the probabilities of all rows as a JSON list."""
    run = load_run(run_dir)
    forward = make_forward(run.model, run.config)
    logits = np.concatenate([logits for _, logits in predict_file(forward, run.config, path)])
    json.dump(tf.sigmoid(logits).numpy().tolist(), sys.stdout)


if __name__ == "__main__":
    main(*sys.argv[1:])
