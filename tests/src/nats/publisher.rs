//! Publishes messages, as programs beside a node do.

use async_nats::jetstream::{self, Context, stream};

use super::Nats;

/// A connection to a broker, with a runtime for it.
pub struct Publisher {
    runtime: tokio::runtime::Runtime,
    context: Context,
}

impl Publisher {
    /// Connects to the servers.
    ///
    /// # Panics
    /// If the servers refuse.
    #[must_use]
    pub fn new(nats: &Nats) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .expect("the servers take it");
        let context = runtime.block_on(async {
            let client = async_nats::connect(nats.urls()).await.expect("the servers take it");
            jetstream::new(client)
        });
        Self { runtime, context }
    }

    /// Creates a stream of these subjects.
    ///
    /// # Panics
    /// If the servers refuse.
    pub fn create(&self, stream: &str, subject: &str) {
        self.create_with(stream, subject, stream::Config::default());
    }

    /// Creates a stream of these subjects that keeps the latest message only.
    ///
    /// # Panics
    /// If the servers refuse.
    pub fn create_of_latest(&self, stream: &str, subject: &str) {
        self.create_with(stream, subject, stream::Config { max_messages: 1, ..stream::Config::default() });
    }

    fn create_with(&self, stream: &str, subject: &str, config: stream::Config) {
        let config = stream::Config { name: stream.into(), subjects: vec![subject.into()], ..config };
        self.runtime.block_on(self.context.create_stream(config)).expect("the servers take it");
    }

    /// Deletes a stream.
    ///
    /// # Panics
    /// If the servers refuse.
    pub fn delete(&self, stream: &str) {
        self.runtime.block_on(self.context.delete_stream(stream)).expect("the servers take it");
    }

    /// Publishes a message and waits until a stream has it.
    ///
    /// # Panics
    /// If the servers refuse.
    pub fn publish(&self, subject: &str, payload: impl Into<Vec<u8>>) {
        let payload = payload.into();
        let published = async {
            self.context
                .publish(subject.to_owned(), payload.into())
                .await
                .expect("the servers take it")
                .await
                .expect("the servers take it")
        };
        self.runtime.block_on(published);
    }

    /// All messages of a stream, in their order.
    ///
    /// # Panics
    /// If the servers refuse.
    #[must_use]
    pub fn contents(&self, stream: &str) -> Vec<Vec<u8>> {
        self.runtime.block_on(async {
            let mut stream = self.context.get_stream(stream).await.expect("the servers take it");
            let last = stream.info().await.expect("the servers take it").state.last_sequence;
            let mut contents = Vec::new();
            for sequence in 1..=last {
                contents.push(stream.get_raw_message(sequence).await.expect("the servers take it").payload.to_vec());
            }
            contents
        })
    }

    /// The number of messages that a stream has; 0 while the servers do not answer.
    #[must_use]
    pub fn count(&self, stream: &str) -> u64 {
        let info =
            async { self.context.get_stream(stream).await.ok()?.info().await.ok().map(|info| info.state.messages) };
        self.runtime.block_on(info).unwrap_or_default()
    }
}
