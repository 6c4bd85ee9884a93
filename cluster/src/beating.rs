//! Sends and hears heartbeats.

use std::sync::Arc;
use std::time::Duration;

use async_nats::Client;
use futures_util::StreamExt as _;
use tokio::time::{MissedTickBehavior, interval};

use crate::heartbeat::Heartbeat;
use crate::node::Node;

/// Between attempts to subscribe.
const RETRY: Duration = Duration::from_millis(500);

/// Sends a heartbeat in each interval, and whenever one is asked for.
pub(crate) async fn send(node: Arc<Node>) {
    let mut interval = interval(node.options.timing.heartbeat);
    interval.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            _ = interval.tick() => {}
            () = node.beat.notified() => {}
        }
        send_one(&node).await;
    }
}

pub(crate) async fn send_one(node: &Node) {
    let heartbeat = node.next_heartbeat();
    publish(&node.access.client, node.names.heartbeat(node.writer.node.as_str()), &heartbeat).await;
}

pub(crate) async fn publish(client: &Client, subject: String, heartbeat: &Heartbeat) {
    let message = serde_json::to_vec(heartbeat).expect("numbers and texts become JSON");
    if let Err(error) = client.publish(subject, message.into()).await {
        tracing::debug!(%error, "a heartbeat is not sent");
    }
}

/// Hears the heartbeats of all nodes.
pub(crate) async fn hear(node: Arc<Node>) {
    loop {
        match node.access.client.subscribe(node.names.heartbeat("*")).await {
            Ok(mut heartbeats) => {
                while let Some(message) = heartbeats.next().await {
                    match serde_json::from_slice::<Heartbeat>(&message.payload) {
                        Ok(heartbeat) if *message.subject == node.names.heartbeat(heartbeat.node.as_str()) => {
                            node.hear(&heartbeat);
                        }
                        Ok(_) => tracing::warn!(subject = %message.subject, "a heartbeat of another node's name"),
                        Err(error) => tracing::warn!(%error, subject = %message.subject, "no heartbeat"),
                    }
                }
            }
            Err(error) => tracing::warn!(%error, "heartbeats are not heard"),
        }
        tokio::time::sleep(RETRY).await;
    }
}
