//! Ingests from Kafka. The broker keeps messages in memory, so it is not killed here.

use std::collections::BTreeMap;

use celeris_tests::Kafka;
use rskafka::client::partition::{Compression, UnknownTopicHandling};
use rskafka::client::{Client, ClientBuilder};
use rskafka::record::Record;

use super::{Ingesting, USERS, await_count, create_model, expected, labels, lag, message, status};

const PARTITIONS: i32 = 3;

struct Producer {
    runtime: tokio::runtime::Runtime,
    client: Client,
}

impl Producer {
    fn new(kafka: &Kafka) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let client = runtime.block_on(async {
            let client = ClientBuilder::new(vec![kafka.address()]).build().await.unwrap();
            client.controller_client().unwrap().create_topic("clicks", PARTITIONS, 1, 5000).await.unwrap();
            client
        });
        Self { runtime, client }
    }

    /// Produces these messages, those of a user into one partition.
    fn produce(&self, numbers: std::ops::Range<usize>, compression: Compression) {
        for partition in 0..PARTITIONS {
            let of_partition = numbers.clone().filter(|number| (number % USERS) as i32 % PARTITIONS == partition);
            let records: Vec<Record> = of_partition.map(|number| record(message(number))).collect();
            self.runtime.block_on(async {
                let handling = UnknownTopicHandling::Retry;
                let client = self.client.partition_client("clicks", partition, handling).await.unwrap();
                for records in records.chunks(50) {
                    client.produce(records.to_vec(), compression).await.unwrap();
                }
            });
        }
    }
}

fn record(value: String) -> Record {
    let timestamp = std::time::SystemTime::now().into();
    Record { key: None, value: Some(value.into_bytes()), headers: BTreeMap::new(), timestamp }
}

#[test]
fn messages_of_all_partitions_count_once_over_kills_of_the_node() {
    let Some(kafka) = Kafka::start() else { return };
    let producer = Producer::new(&kafka);
    producer.produce(0..900, Compression::NoCompression);
    let broker = kafka.address();
    let ingesting = Ingesting::new(&format!(
        "[[ingest]]\nname = \"clicks\"\nmodel = \"m\"\n[ingest.kafka]\nbrokers = [\"{broker}\"]\ntopic = \"clicks\"\n"
    ));
    let node = ingesting.start();
    create_model(&node);
    await_count(&node, 1);
    node.kill_hard();
    producer.produce(900..1500, Compression::Gzip);
    let node = ingesting.start();
    await_count(&node, 1);
    node.kill_hard();
    let node = ingesting.start();
    celeris_tests::eventually("all partitions are read to their ends", || {
        let status = status(&node);
        let all = status["partitions"].as_array().unwrap().len() == PARTITIONS as usize;
        (all && lag(&status) == Some(0)).then_some(())
    });
    assert_eq!(node.terminate().code, Some(0));
    assert_eq!(labels(&ingesting.data_dir()), expected(0..1500));
}
