"""Worker: FBGEMM's table-batched embedding (TBE) on the CPU, update fused into backward.

Its CPU build has SGD, Adagrad and row-wise Adagrad, and no Adam.
"""

from __future__ import annotations

import numpy as np
import torch
from fbgemm_gpu.split_embedding_configs import EmbOptimType
from fbgemm_gpu.split_table_batched_embeddings_ops_common import EmbeddingLocation, PoolingMode
from fbgemm_gpu.split_table_batched_embeddings_ops_training import (
    ComputeDevice,
    SplitTableBatchedEmbeddingBagsCodegen,
)

from peers.worker import (
    ACCUMULATOR,
    EPSILON,
    LEARNING_RATE,
    Request,
    measure,
    report,
    say,
    start,
    unavailable,
)
from peers.workload import Workload

OPTIMIZERS = {
    "sgd": EmbOptimType.EXACT_SGD,
    "adagrad": EmbOptimType.EXACT_ADAGRAD,
    "rowwise_adagrad": EmbOptimType.EXACT_ROWWISE_ADAGRAD,
    "adam": EmbOptimType.ADAM,
}


def run(request: Request, workload: Workload, name: str) -> None:
    """Measures one optimizer."""
    features, batch = workload.ids.shape[1:]
    try:
        tables = SplitTableBatchedEmbeddingBagsCodegen(
            [
                (
                    workload.rows_per_table,
                    workload.dim,
                    EmbeddingLocation.HOST,
                    ComputeDevice.CPU,
                )
            ]
            * workload.tables,
            feature_table_map=[i % workload.tables for i in range(features)],
            optimizer=OPTIMIZERS[name],
            learning_rate=LEARNING_RATE[name],
            eps=EPSILON,
            pooling_mode=PoolingMode.SUM,
        )
    except (AssertionError, NotImplementedError) as err:
        unavailable(name, f"not in FBGEMM's CPU build: {str(err).splitlines()[0][:120]}")
        return
    tables.init_embedding_weights_uniform(0.0, 0.0)
    if name != "sgd":
        for states in tables.split_optimizer_states():
            states[0].fill_(ACCUMULATOR)
    say(f"FBGEMM {name}")
    offsets = torch.arange(features * batch + 1, dtype=torch.int64)
    batches = [torch.from_numpy(np.ascontiguousarray(i).reshape(-1)) for i in workload.ids]
    gradients = torch.from_numpy(
        np.ascontiguousarray(workload.gradients().transpose(1, 0, 2)).reshape(batch, -1)
    )

    def step(i: int) -> torch.Tensor:
        rows = tables(batches[i], offsets)
        rows.backward(gradients)
        return rows

    facts = measure(step, len(batches), request.repeats)
    with torch.no_grad():
        probe = float(tables(batches[0], offsets).abs().sum())
    report(name, "", {**facts, "probe": probe})


def main(request: Request, workload: Workload) -> None:
    """Measures the requested optimizers."""
    torch.set_num_threads(request.threads)
    for name in request.optimizers:
        run(request, workload, name)


if __name__ == "__main__":
    main(*start())
