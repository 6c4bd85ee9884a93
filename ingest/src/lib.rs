//! Observations from message brokers: NATS JetStream and Kafka.
