//! How long writes are out while a node or a server leaves or is lost.

use std::time::{Duration, Instant};

use celeris_model::UserId;

use super::nats::{Nats, SERVERS};
use super::nodes::{NODES, Nodes};
use super::watch::{Seen, Watch};
use crate::Settings;
use crate::report::Report;
use celeris_cli::Failure;

/// What is lost, one after the other.
pub struct Losses<'a> {
    settings: &'a Settings,
    nats: &'a mut Nats,
    nodes: &'a mut Nodes,
    /// Two users of each shard.
    users: Vec<[UserId; 2]>,
    /// The losses so far: watches have different names.
    lost: usize,
}

impl<'a> Losses<'a> {
    pub fn new(settings: &'a Settings, (nats, nodes): (&'a mut Nats, &'a mut Nodes), users: Vec<[UserId; 2]>) -> Self {
        Self { settings, nats, nodes, users, lost: 0 }
    }

    /// Loses every node and every server once in each way; the worst of each is reported.
    ///
    /// # Errors
    /// If the cluster does not survive.
    pub fn run(&mut self, report: &mut Report) -> Result<(), Failure> {
        let released = self.each(NODES, |losses, node| losses.release(node))?;
        report.single("release/writes", "ms", Some(millis(released.writes_out)));
        report.single("release/slowest_read", "ms", Some(millis(released.slowest_read)));
        report.single("release/failed_reads", "reads", Some(released.failed_reads as f64));
        let killed = self.each(NODES, |losses, node| losses.kill_node(node))?;
        report.single("killed_owner/writes", "s", Some(killed.writes_out.as_secs_f64()));
        let stopped = self.each(SERVERS, |losses, server| losses.lose_server(server, Nats::stop))?;
        report.single("stopped_server/writes", "s", Some(stopped.writes_out.as_secs_f64()));
        report.single("stopped_server/failed_reads", "reads", Some(stopped.failed_reads as f64));
        let killed = self.each(SERVERS, |losses, server| losses.lose_server(server, Nats::kill))?;
        report.single("killed_server/writes", "s", Some(killed.writes_out.as_secs_f64()));
        report.single("killed_server/failed_reads", "reads", Some(killed.failed_reads as f64));
        Ok(())
    }

    /// Loses the first `count` of something; in a quick run, only the first one.
    fn each(
        &mut self,
        count: usize,
        mut lose: impl FnMut(&mut Self, usize) -> Result<Seen, Failure>,
    ) -> Result<Seen, Failure> {
        let mut worst = Seen::default();
        for number in 0..self.settings.pick(count, 1) {
            let seen = lose(self, number)?;
            eprintln!(
                "  lost {number}: writes out for {:.0} ms, slowest read {:.0} ms, failed reads {}",
                millis(seen.writes_out),
                millis(seen.slowest_read),
                seen.failed_reads
            );
            worst = worst.worse(seen);
        }
        Ok(worst)
    }

    /// Clients at all nodes but one.
    fn watch(&mut self, without: Option<usize>) -> Result<Watch, Failure> {
        self.nodes.await_owners()?;
        self.nats.await_ready()?;
        self.lost += 1;
        let via = self.nodes.running().filter(|node| Some(*node) != without);
        let via: Vec<_> = via.map(|node| self.nodes.address(node)).collect();
        let name = format!("loss-{}", self.lost);
        let watch = Watch::start(&via, &self.users, &self.nodes.items()[0], &name);
        watch.await_writes(Instant::now())?;
        Ok(watch)
    }

    /// SIGTERM: the node gives its shards to the others.
    fn release(&mut self, node: usize) -> Result<Seen, Failure> {
        let watch = self.watch(Some(node))?;
        let lost = Instant::now();
        self.nodes.take(node).stop()?;
        let seen = watch.end(lost)?;
        self.nodes.start_node(node)?;
        Ok(seen)
    }

    fn kill_node(&mut self, node: usize) -> Result<Seen, Failure> {
        let watch = self.watch(Some(node))?;
        let lost = Instant::now();
        // Dropped servers are killed.
        drop(self.nodes.take(node));
        let seen = watch.end(lost)?;
        self.nodes.start_node(node)?;
        Ok(seen)
    }

    fn lose_server(
        &mut self,
        server: usize,
        lose: fn(&mut Nats, usize) -> Result<(), Failure>,
    ) -> Result<Seen, Failure> {
        let watch = self.watch(None)?;
        let lost = Instant::now();
        lose(self.nats, server)?;
        let seen = watch.end(lost)?;
        self.nats.start_server(server)?;
        self.nats.await_ready()?;
        Ok(seen)
    }
}

fn millis(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e3
}
