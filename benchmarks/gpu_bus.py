"""What do the bus, host memory and launches of a GPU cost? The design of the tiers depends on it.

Copies between device and host; kernels that read and write random lines of 1.5 KB (a row of dim
128 with Adam's state) in host memory that CUDA has registered, with and without huge pages; a
launch, an event, a small copy.

    python benchmarks/gpu_bus.py [--gigabytes 32] [--json F]

Needs CuPy. Each measurement that fails says why, and the others go on. Without a GPU it prints so.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import mmap
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

LINE_BYTES = 1536
LINES = 1 << 18  # of one kernel: 403 MB
REPEATS = 20
COPY_BYTES = 1 << 30
SMALL_CALLS = 2000

# One warp a line, 16 bytes a thread at a time, as the fetch of missing rows would have it.
SOURCE = r"""
extern "C" __global__ void read_lines(const uint4* host, uint4* device, const long long* lines,
                                      long long count, int words) {
  const long long warp = (blockIdx.x * (long long)blockDim.x + threadIdx.x) / 32;
  if (warp >= count) return;
  for (int w = threadIdx.x % 32; w < words; w += 32)
    device[warp * words + w] = host[lines[warp] * words + w];
}
extern "C" __global__ void write_lines(uint4* host, const uint4* device, const long long* lines,
                                       long long count, int words) {
  const long long warp = (blockIdx.x * (long long)blockDim.x + threadIdx.x) / 32;
  if (warp >= count) return;
  for (int w = threadIdx.x % 32; w < words; w += 32)
    host[lines[warp] * words + w] = device[warp * words + w];
}
extern "C" __global__ void nothing() {}
"""

Result = dict[str, Any]


def result(case: str, metric: str, value: float | str, unit: str) -> Result:
    shown = value if isinstance(value, str) else round(value, 3)
    return {"case": case, "metric": metric, "value": shown, "unit": unit}


def median_seconds(cupy: Any, work: Callable[[], object]) -> float:
    """Median of REPEATS, by events of the current stream."""
    begin, end = cupy.cuda.Event(), cupy.cuda.Event()
    work()
    times = []
    for _ in range(REPEATS):
        begin.record()
        work()
        end.record()
        end.synchronize()
        times.append(cupy.cuda.get_elapsed_time(begin, end) * 1e-3)
    return float(statistics.median(times))


def copies(cupy: Any) -> list[Result]:
    runtime = cupy.cuda.runtime
    pinned = cupy.cuda.alloc_pinned_memory(COPY_BYTES)
    first, second = cupy.empty(COPY_BYTES, "u1"), cupy.empty(COPY_BYTES, "u1")
    places = {
        "host to device": (first.data.ptr, pinned.ptr, 1),
        "device to host": (pinned.ptr, first.data.ptr, 1),
        "device to device, read and written": (second.data.ptr, first.data.ptr, 2),
    }
    results = []
    for case, (to, source, times) in places.items():

        def copy(to: int = to, source: int = source) -> None:
            runtime.memcpyAsync(to, source, COPY_BYTES, runtime.memcpyDefault, 0)

        rate = times * COPY_BYTES / median_seconds(cupy, copy)
        results.append(result(case, "copy of 1 GiB", rate / 1e9, "GB/s"))
    return results


def host_lines(cupy: Any, gigabytes: float, huge: bool) -> list[Result]:
    """Kernels over random lines of registered host memory."""
    runtime = cupy.cuda.runtime
    pages = "huge pages" if huge else "pages of 4 KiB"
    size = int(gigabytes * 2**30) // LINE_BYTES * LINE_BYTES
    memory = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    memory.madvise(mmap.MADV_HUGEPAGE if huge else mmap.MADV_NOHUGEPAGE)
    whole = np.frombuffer(memory, np.uint8)
    whole[::4096] = 1  # touched
    began = time.perf_counter()
    runtime.hostRegister(whole.ctypes.data, size, 2)  # cudaHostRegisterMapped
    case = f"{gigabytes:g} GiB, {pages}"
    results = [result(case, "registration", time.perf_counter() - began, "s")]
    try:
        host = runtime.hostGetDevicePointer(whole.ctypes.data, 0)
        device = cupy.empty(LINES * LINE_BYTES, "u1")
        rng = np.random.default_rng(1)
        lines = cupy.asarray(rng.integers(0, size // LINE_BYTES, LINES))
        module = cupy.RawModule(code=SOURCE)
        threads, words = 256, LINE_BYTES // 16
        blocks = LINES * 32 // threads
        for name, first, second in (
            ("read_lines", host, device.data.ptr),
            ("write_lines", host, device.data.ptr),
        ):
            kernel = module.get_function(name)
            arguments = (
                np.uintp(first), np.uintp(second), np.uintp(lines.data.ptr), np.int64(LINES),
                np.int32(words),
            )  # fmt: skip

            def launch(kernel: Any = kernel, arguments: Any = arguments) -> None:
                kernel((blocks,), (threads,), arguments)

            rate = LINES * LINE_BYTES / median_seconds(cupy, launch)
            metric = f"{name.replace('_', ' random ')} of {LINE_BYTES} bytes"
            results.append(result(case, metric, rate / 1e9, "GB/s"))
    finally:
        runtime.deviceSynchronize()
        runtime.hostUnregister(whole.ctypes.data)
    return results


def calls(cupy: Any) -> list[Result]:
    """What a call costs the host, and one that is waited for."""
    runtime = cupy.cuda.runtime
    nothing = cupy.RawModule(code=SOURCE).get_function("nothing")
    event, stream = cupy.cuda.Event(disable_timing=True), cupy.cuda.get_current_stream()
    pinned = cupy.cuda.alloc_pinned_memory(4096)
    device = cupy.empty(4096, "u1")

    def copy() -> None:
        runtime.memcpyAsync(pinned.ptr, device.data.ptr, 4096, runtime.memcpyDefault, 0)

    def waited(work: Callable[[], object]) -> Callable[[], object]:
        def both() -> None:
            work()
            stream.synchronize()

        return both

    works: dict[str, Callable[[], object]] = {
        "launch of an empty kernel (through Python)": lambda: nothing((1,), (32,), ()),
        "record of an event (through Python)": lambda: event.record(),
        "copy of 4 KiB to the host (through Python)": copy,
        "launch of an empty kernel, waited for": waited(lambda: nothing((1,), (32,), ())),
        "copy of 4 KiB to the host, waited for": waited(copy),
    }
    results = []
    for case, work in works.items():
        work()
        runtime.deviceSynchronize()
        began = time.perf_counter()
        for _ in range(SMALL_CALLS):
            work()
        seconds = (time.perf_counter() - began) / SMALL_CALLS
        runtime.deviceSynchronize()
        results.append(result(case, "a call", seconds * 1e6, "us"))
    return results


def has_gpu() -> bool:
    """Whether CuPy is here and finds a GPU."""
    if importlib.util.find_spec("cupy") is None:
        return False
    import cupy

    try:
        return int(cupy.cuda.runtime.getDeviceCount()) > 0
    except cupy.cuda.runtime.CUDARuntimeError:
        return False


def measure(gigabytes: float) -> list[Result]:
    import cupy  # type: ignore[import-not-found]

    results: list[Result] = []
    works: dict[str, Callable[[], list[Result]]] = {
        "copies": lambda: copies(cupy),
        "lines in huge pages": lambda: host_lines(cupy, gigabytes, huge=True),
        "lines in pages of 4 KiB": lambda: host_lines(cupy, gigabytes, huge=False),
        "calls": lambda: calls(cupy),
    }
    for name, work in works.items():
        try:
            found = work()
        except Exception as err:  # the others still count
            found = [result(name, "failed", f"{type(err).__name__}: {err}", "")]
        for line in found:
            print(f"{line['case']:<44}  {line['metric']:<34} {line['value']:>10} {line['unit']}")
        results += found
    return results


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--gigabytes", type=float, default=32.0, help="of host memory")
    parser.add_argument("--json", type=Path, help="where the results go as JSON")
    options = parser.parse_args()
    results = measure(options.gigabytes) if has_gpu() else []
    if not results:
        print("not yet run: no GPU, or no CuPy that sees one")
    if options.json is not None:
        options.json.write_text(json.dumps({"results": results}, indent=1))
    if any(line["metric"] == "failed" for line in results):
        raise SystemExit(1)


if __name__ == "__main__":
    main()
