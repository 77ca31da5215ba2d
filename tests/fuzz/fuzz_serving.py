"""Sends a server what no client should: each gets a proper status, and the server goes on.

Requests over gRPC and REST are made of random bytes, of damaged good ones, and by their schema with
random types, shapes, names and values; clients break connections off in the middle. A case fails
when an answer has a status that blames the server, a good request is not answered right, a process
ended, or memory grew.

Run it by `make fuzz`, or `python tests/fuzz/fuzz_serving.py --seconds 60`. A run is repeated by
`--seed`.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import socket
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import grpc
import numpy as np
import tensorflow as tf
from integration.serving.conftest import Server, save_zoo
from integration.serving.server_processes import control_of, data_plane_of
from tensorflow.core.framework import types_pb2
from tensorflow_serving.apis import classification_pb2, inference_pb2, predict_pb2

SERVICE = "/tensorflow.serving.PredictionService/"
METHODS = ("Predict", "Classify", "Regress", "MultiInference", "GetModelMetadata")
# Signatures whose runs end: by themselves, or by the deadline of a test.
SIGNATURES = ("serving_default", "echo", "add", "kinds", "columns", "bag", "uneven", "total")
INPUTS = ("x", "a", "b", "text", "yes", "number", "count", "word", "ids", "ids_row_splits")
REFUSALS = {
    grpc.StatusCode.INVALID_ARGUMENT,
    grpc.StatusCode.NOT_FOUND,
    grpc.StatusCode.FAILED_PRECONDITION,
    grpc.StatusCode.UNIMPLEMENTED,
    grpc.StatusCode.DEADLINE_EXCEEDED,
    grpc.StatusCode.RESOURCE_EXHAUSTED,
    grpc.StatusCode.OUT_OF_RANGE,
}
UNPARSED = "the request is no message of this method"
HTTP_REFUSALS = {400, 404, 405, 408, 413, 415, 429, 501, 504}
CHECK_EVERY = 200
# More than this, and more than a tenth, is a leak.
GROWTH_BYTES = 64 << 20


class Fuzzer:
    """Makes cases and judges the answers."""

    def __init__(self, server: Server, random: Random) -> None:
        self.server = server
        self.random = random
        self.outcomes: Counter[str] = Counter()
        self.processes = (data_plane_of(server), control_of(server))
        self._cases: list[Callable[[], None]] = [
            *(self.raw_grpc, self.damaged_grpc, self.made_predict, self.made_examples),
            *(self.raw_rest, self.damaged_rest, self.made_rest),
            *(self.cancelled_grpc, self.broken_connection, self.broken_rest),
        ]

    def case(self) -> None:
        """Sends one of them."""
        self.random.choice(self._cases)()

    # --- gRPC --------------------------------------------------------------------------------

    def raw_grpc(self) -> None:
        self._call(self._bytes(self.random.choice((0, 3, 40, 5000))), self._method())

    def damaged_grpc(self) -> None:
        good = self._good_request().SerializeToString()
        self._call(self._damaged(good), "Predict")

    def made_predict(self) -> None:
        request = predict_pb2.PredictRequest()
        self._fill_spec(request.model_spec)
        for name in self.random.sample(INPUTS, self.random.randint(0, 3)):
            request.inputs[name].CopyFrom(self._tensor())
        if self.random.random() < 0.3:
            request.output_filter.append(self.random.choice((*INPUTS, "y", "", "sum")))
        self._call(request.SerializeToString(), "Predict")

    def made_examples(self) -> None:
        request: Any = self.random.choice(
            (classification_pb2.ClassificationRequest, inference_pb2.MultiInferenceRequest)
        )()
        examples = request.input.example_list.examples
        for _ in range(self.random.randint(0, 3)):
            feature = examples.add().features.feature[self._name()]
            kind = self.random.choice(("float_list", "int64_list", "bytes_list"))
            value: Any = {"float_list": 1.5, "int64_list": -(2**63), "bytes_list": b"\xff"}[kind]
            getattr(feature, kind).value.extend([value] * self.random.randint(0, 3))
        if isinstance(request, classification_pb2.ClassificationRequest):
            self._fill_spec(request.model_spec)
            self._call(request.SerializeToString(), self.random.choice(("Classify", "Regress")))
            return
        for _ in range(self.random.randint(0, 3)):
            task = request.tasks.add(
                method_name=self.random.choice(("", "tensorflow/serving/classify"))
            )
            self._fill_spec(task.model_spec)
        self._call(request.SerializeToString(), "MultiInference")

    def cancelled_grpc(self) -> None:
        future = self.server.prediction.Predict.future(self._good_request(), timeout=5)
        if self.random.random() < 0.5:
            time.sleep(self.random.random() / 1000)
        future.cancel()
        self.outcomes["cancelled"] += 1

    def broken_connection(self) -> None:
        """The beginning of a connection of HTTP/2, true or not, and no more."""
        with socket.create_connection(("127.0.0.1", self.server.port)) as connection:
            start = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" if self.random.random() < 0.7 else b""
            frames = b"\x00\x00\x00\x04\x00\x00\x00\x00\x00" if start else b""
            connection.sendall(start + frames + self._bytes(self.random.choice((0, 9, 100))))
        self.outcomes["broken off"] += 1

    def _call(self, message: bytes, method: str) -> None:
        call = self.server.channel.unary_unary(SERVICE + method)
        future = call.future(message, timeout=2)
        code, details = future.code(), future.details()
        proper = code in {grpc.StatusCode.OK, *REFUSALS} or (
            code is grpc.StatusCode.INTERNAL and details == UNPARSED
        )
        assert proper, f"{method} {message!r}: {code} {details}"
        self.outcomes[code.name] += 1

    # --- REST --------------------------------------------------------------------------------

    def raw_rest(self) -> None:
        self._post(self._path(), self._bytes(self.random.choice((0, 5, 300))))

    def damaged_rest(self) -> None:
        good = json.dumps({"instances": [[1.0, 2.0], [3.0, 4.0]]}).encode()
        self._post("/v1/models/zoo:predict", self._damaged(good))

    def made_rest(self) -> None:
        body: Any = {
            self.random.choice(("instances", "inputs", "examples", "context")): self._json(3)
            for _ in range(self.random.randint(0, 2))
        }
        if self.random.random() < 0.7:
            body["signature_name"] = self.random.choice((*SIGNATURES, "", 7, None))
        self._post(self._path(), json.dumps(body).encode())

    def broken_rest(self) -> None:
        """A request that ends before its body, or its headers, do."""
        head = b"POST /v1/models/zoo:predict HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n"
        with socket.create_connection(("127.0.0.1", self.server.rest_port)) as connection:
            connection.sendall(head + self.random.choice((b"", b"\r\n", b"\r\n{", b"\xff")))
        self.outcomes["broken off"] += 1

    def _post(self, path: str, body: bytes) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", self.server.rest_port, timeout=60)
        headers = {"Content-Encoding": "gzip"} if self.random.random() < 0.1 else {}
        try:
            connection.request("POST", path, body, headers)
            reply = connection.getresponse()
            text = reply.read()
        finally:
            connection.close()
        self.outcomes[str(reply.status)] += 1
        assert reply.status == 200 or reply.status in HTTP_REFUSALS, (
            f"{path} {body!r}: {reply.status} {text!r}"
        )
        if reply.status != 200 and path.startswith("/v1/"):
            assert json.loads(text)["error"], f"{path} {body!r}: {text!r}"

    # --- what they are made of -----------------------------------------------------------------

    def _bytes(self, most: int) -> bytes:
        return self.random.randbytes(self.random.randint(0, most))

    def _damaged(self, good: bytes) -> bytes:
        damaged = bytearray(good)
        for _ in range(self.random.randint(1, 4)):
            at = self.random.randrange(len(damaged) + 1)
            kind = self.random.randrange(4)
            if kind == 0 and at < len(damaged):
                damaged[at] = self.random.randrange(256)
            elif kind == 1:
                del damaged[at : at + self.random.randint(1, 20)]
            elif kind == 2:
                damaged[at:at] = self._bytes(8)
            else:
                damaged[at:at] = damaged[: self.random.randint(0, 30)]
        return bytes(damaged)

    def _good_request(self) -> predict_pb2.PredictRequest:
        request = predict_pb2.PredictRequest()
        request.model_spec.name = "zoo"
        request.inputs["x"].CopyFrom(tf.make_tensor_proto(np.ones([3, 2], np.float32)))
        return request

    def _fill_spec(self, spec: Any) -> None:
        spec.name = self.random.choice(("zoo", "zoo", "zoo", "zoo", "", "other", "é"))
        spec.signature_name = self.random.choice((*SIGNATURES, "", "nothing"))
        if self.random.random() < 0.1:
            spec.version.value = self.random.choice((1, 0, -1, 2**63 - 1))
        elif self.random.random() < 0.1:
            spec.version_label = self._name()

    def _tensor(self) -> Any:
        proto = tf.make_tensor_proto(0.0)
        proto.Clear()
        proto.dtype = self.random.choice(list(types_pb2.DataType.values()))
        for _ in range(self.random.choice((0, 1, 1, 2, 3))):
            size = self.random.choice((0, 1, 1, 2, 3, 7, -1, 2**20, 2**31, 2**62, -(2**63)))
            proto.tensor_shape.dim.add(size=size)
        proto.tensor_shape.unknown_rank = self.random.random() < 0.05
        count = self.random.choice((0, 1, 1, 2, 6, 20))
        for field, value in (
            ("float_val", 1.5),
            ("double_val", float("nan")),
            ("int_val", -1),
            ("int64_val", 2**62),
            ("string_val", self._bytes(60)),
            ("bool_val", True),
            ("half_val", 70_000),
            ("uint64_val", 2**64 - 1),
        ):
            if self.random.random() < 0.25:
                getattr(proto, field).extend([value] * count)
        if self.random.random() < 0.3:
            proto.tensor_content = self._bytes(64)
        return proto

    def _json(self, depth: int) -> Any:
        kind = self.random.randrange(9 if depth > 0 else 6)
        if kind == 6:
            return [self._json(depth - 1) for _ in range(self.random.randint(0, 3))]
        if kind == 7:
            return {self._name(): self._json(depth - 1) for _ in range(self.random.randint(0, 3))}
        if kind == 8:
            return {"b64": self.random.choice(("", "AAAA", "not base64", 5))}
        return (0, -(2**70), 1.5, 1e400, "text", self.random.choice((None, True)))[kind]

    def _name(self) -> str:
        return self.random.choice((*INPUTS, "", "b64", "\x00", "é" * 50))

    def _method(self) -> str:
        return self.random.choice((*METHODS, "Nothing"))

    def _path(self) -> str:
        return self.random.choice(
            (
                *("/v1/models/zoo:predict", "/v1/models/zoo:classify", "/v1/models/zoo:regress"),
                *("/v1/models/zoo/versions/1:predict", "/v1/models/zoo/labels/x:predict"),
                *("/v1/models/other:predict", "/v1/models/zoo/versions/99999999999999999999"),
                *("/v1/models/%FF%00:predict", "/v1/models/", "/v1/nothing", "/", "/v1/models//:x"),
            )
        )

    # --- how the server is ---------------------------------------------------------------------

    def check(self) -> None:
        """A good request is answered right, by the processes that there were."""
        reply = self.server.prediction.Predict(self._good_request(), timeout=30)
        assert tf.make_ndarray(reply.outputs["y"]).tolist() == [[1.0, 1.0]] * 3
        status, body = self.server.rest_predict({"instances": [[1.0, 2.0]]})
        assert status == 200, body
        now = (data_plane_of(self.server), control_of(self.server))
        assert now == self.processes, f"a process ended: {self.server.log}"

    def resident(self) -> tuple[int, ...]:
        """Returns the memory of the executable and of the control process."""
        page = os.sysconf("SC_PAGE_SIZE")
        return tuple(
            int(Path(f"/proc/{process}/statm").read_text().split()[1]) * page
            for process in self.processes
        )


def main() -> int:
    """Sends cases until the time is over; 1 when one failed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        base = save_zoo(Path(name) / "zoo")
        server = Server("zoo", base)
        number = 0
        try:
            server.wait_ready()
            fuzzer = Fuzzer(server, Random(options.seed))
            start = time.monotonic()
            early: tuple[int, ...] = ()
            while time.monotonic() < start + options.seconds:
                fuzzer.case()
                number += 1
                if number % CHECK_EVERY == 0:
                    fuzzer.check()
                if not early and time.monotonic() > start + 0.4 * options.seconds:
                    early = fuzzer.resident()
            fuzzer.check()
            late = fuzzer.resident()
            grown = [
                after - before > max(GROWTH_BYTES, before / 10)
                for before, after in zip(early, late, strict=True)
            ]
            assert not any(grown), f"memory grew from {early} to {late}"
        except AssertionError as err:
            print(f"case {number} of seed {options.seed}: {str(err)[:4000]}")
            return 1
        finally:
            server.close()
    outcomes = ", ".join(f"{count} {what}" for what, count in fuzzer.outcomes.most_common())
    memory = ", ".join(
        f"{b / 1e6:.0f} to {a / 1e6:.0f} MB" for b, a in zip(early, late, strict=True)
    )
    print(f"{number} cases, none failed; {outcomes}; memory {memory}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
