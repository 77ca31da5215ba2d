"""What steps on a GPU are measured against: PyTorch's bags and a cache like Colossal-AI's."""

from __future__ import annotations

from typing import Any

from gpu_workload import CACHE_RATIO, DIM, TABLES, Timer


class CachedRows:
    """Colossal-AI's cached embedding in plain PyTorch, as in ColossalAI's cached_param_mgr.

    All rows in pinned host memory, cache_rows of them on the device; maps as long as the
    vocabulary; the least frequent rows out of the batch are evicted; rows are written back
    whether they changed or not. The optimizer's state stays with the slots: only SGD is exact.
    """

    def __init__(self, torch: Any, rows: int, cache_rows: int) -> None:
        self.torch = torch
        self.host = torch.zeros((rows, DIM), pin_memory=True)
        self.cache = torch.zeros((cache_rows, DIM), device="cuda", requires_grad=True)
        self.slot_of = torch.full((rows,), -1, dtype=torch.int64, device="cuda")
        self.row_of = torch.full((cache_rows,), -1, dtype=torch.int64, device="cuda")
        self.uses = torch.zeros((rows,), dtype=torch.int64, device="cuda")

    def prepare(self, ids: Any) -> Any:
        """Brings the rows of a batch in; returns their slots."""
        torch = self.torch
        distinct, counts = torch.unique(ids, return_counts=True)
        self.uses[distinct] += counts
        missing = distinct[self.slot_of[distinct] < 0]
        if len(missing) > 0:
            worth = torch.where(self.row_of < 0, -1, self.uses[self.row_of.clamp(min=0)])
            present = self.slot_of[distinct]
            worth[present[present >= 0]] = torch.iinfo(torch.int64).max
            slots = torch.topk(worth, len(missing), largest=False).indices
            old = self.row_of[slots]
            leaving = old >= 0
            with torch.no_grad():
                self.host[old[leaving].cpu()] = self.cache[slots[leaving]].cpu()
                self.slot_of[old[leaving]] = -1
                self.cache[slots] = self.host[missing.cpu()].to("cuda")
            self.row_of[slots] = missing
            self.slot_of[missing] = slots
        return self.slot_of[ids]


def embedding_bags(
    torch: Any, timer: Timer, ids: Any, gradients: Any, rows: int, optimizer: str
) -> float:
    bags = [
        torch.nn.EmbeddingBag(rows, DIM, mode="sum", sparse=True, device="cuda")
        for _ in range(TABLES)
    ]
    weights = [w for bag in bags for w in bag.parameters()]
    apply = (
        torch.optim.SparseAdam(weights) if optimizer == "Adam" else torch.optim.SGD(weights, 0.01)
    )
    offsets = torch.arange(gradients[0].shape[0], device="cuda")

    def step(i: int) -> None:
        apply.zero_grad(set_to_none=True)
        for bag, k, gradient in zip(bags, ids[i], gradients, strict=True):
            bag(k, offsets).backward(gradient)
        apply.step()

    return timer.median_ms(step)


def colossal(torch: Any, timer: Timer, ids: Any, gradients: Any, rows: int) -> float:
    tables = [CachedRows(torch, rows, int(rows * CACHE_RATIO)) for _ in range(TABLES)]
    apply = torch.optim.SGD([t.cache for t in tables], 0.01)

    def step(i: int) -> None:
        apply.zero_grad(set_to_none=True)
        for table, k, gradient in zip(tables, ids[i], gradients, strict=True):
            slots = table.prepare(k)
            torch.nn.functional.embedding(slots, table.cache, sparse=True).backward(gradient)
        apply.step()

    return timer.median_ms(step)
