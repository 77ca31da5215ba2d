"""Where events come from: files that grow, recorded files, Redis Streams, Kafka."""
