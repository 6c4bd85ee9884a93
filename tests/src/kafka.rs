//! A broker that speaks the protocol of Kafka, as a process: Tansu, which keeps messages in memory.

use std::env;
use std::net::TcpListener;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use celeris_skip::{Need, unless};

use crate::nats::peers;
use crate::wait::eventually;

/// The program that `CELERIS_KAFKA_BROKER` names, or the one that `scripts/test` installs.
fn program() -> Option<PathBuf> {
    if let Some(named) = env::var_os("CELERIS_KAFKA_BROKER") {
        return Some(named.into());
    }
    let program = peers()?.join("kafka/bin/tansu");
    program.is_file().then_some(program)
}

/// A broker. Dropping it kills it, with all messages.
pub struct Kafka {
    process: Child,
    port: u16,
}

impl Kafka {
    /// Starts a broker and waits until it answers; `None`, and the test is skipped, if there is no program.
    ///
    /// # Panics
    /// If it does not start.
    #[must_use]
    pub fn start() -> Option<Self> {
        let program = unless(Need::Kafka, program(), "no broker of Kafka's protocol; scripts/test installs it")?;
        let free = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr());
        let port = free.expect("a port is free").port();
        let url = format!("tcp://127.0.0.1:{port}");
        let mut command = Command::new(program);
        command.args(["broker", "--storage-engine", "memory://tests/", "--listener-url", &url]);
        command.args(["--advertised-listener-url", &url]);
        let started = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        let broker = Self { process: started.expect("the program can be run"), port };
        eventually("the broker listens", || std::net::TcpStream::connect(("127.0.0.1", port)).ok());
        Some(broker)
    }

    /// Its address, as `host:port`.
    #[must_use]
    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }
}

impl Drop for Kafka {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
