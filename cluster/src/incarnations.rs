//! The identity of the cluster: what all nodes must agree on before they open a store.
//!
//! Message `i` of the stream is the identity of incarnation `i`. It is appended on the condition
//! that it is the `i`-th, so of two founders one wins.

use std::time::Duration;

use bytes::Bytes;
use celeris_model::{LogId, Shards};
use celeris_storage::{ClusterIdentity, Storage};
use futures_util::{StreamExt as _, future};
use serde::{Deserialize, Serialize};
use tokio::sync::watch;

use crate::append::{Appender, Outcome};
use crate::error::ClusterError;
use crate::follower::end_of;
use crate::options::{ClusterOptions, StreamOptions};
use crate::streams::{Access, Link, Names};

/// Servers reserve the maximum size of each stream.
const BYTES_MAX: u64 = 1 << 20;

/// How long the servers may take to list their streams.
const NAMES_TIMEOUT: Duration = Duration::from_secs(3);

/// How often the last message is asked for, if the stream has one.
const READ_ATTEMPTS: usize = 20;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Incarnation {
    shards: u8,
    /// In hexadecimal.
    hash_key: String,
    /// The incarnation from whose copy this one was recovered.
    from: Option<u64>,
}

/// The identity of a cluster's last incarnation.
pub(crate) struct Identified {
    pub(crate) identity: ClusterIdentity,
    /// Whether it began with the copy of a node.
    pub(crate) is_from_copy: bool,
    /// Whether this node has founded the cluster.
    pub(crate) is_founded: bool,
}

/// Reads the identity of the last incarnation, or founds the cluster, unless this node has a copy of it.
pub(crate) async fn find_or_found(
    access: &Access,
    options: &ClusterOptions,
    abort: watch::Receiver<bool>,
) -> Result<Identified, ClusterError> {
    let (stream, subject) = Names::incarnations(&options.cluster);
    let link = Link { access: access.clone(), stream, subject };
    let unknown = || ClusterError::NoCluster { cluster: options.cluster.clone() };
    if options.copy.is_some() && !link.exists().await? {
        return Err(unknown());
    }
    link.create(&StreamOptions { bytes_max: BYTES_MAX, ..options.streams.clone() }).await?;
    let mut last = link.extent_at_start().await?.last;
    if options.copy.is_some_and(|copy| copy > last) {
        return Err(unknown());
    }
    let mut is_founded = false;
    if last == 0 {
        warn_of_others(access, options).await;
        let message = found(options)?;
        let appender = Appender {
            link: link.clone(),
            retry_wait: options.timing.retry_wait,
            abort,
            log: LogId::Catalog,
            bytes_max: message.len(),
        };
        match appender.append(0, &message).await {
            Outcome::Appended { .. } => is_founded = true,
            // Another node has founded it meanwhile.
            Outcome::Taken(_) => {}
            outcome => return Err(failed(&link, format!("the first message is {outcome:?}"))),
        }
        last = 1;
    }
    let (identity, is_from_copy) = read(&link, options, last).await?;
    Ok(Identified { identity, is_from_copy, is_founded })
}

/// Names the other clusters that these servers hold: a name that is misspelt founds another one.
async fn warn_of_others(access: &Access, options: &ClusterOptions) {
    let Some(names) = stream_names(access).await else { return };
    let clusters = names.iter().filter_map(|name| Names::cluster_of(name));
    let others: Vec<&str> = clusters.filter(|other| *other != options.cluster).collect();
    if !others.is_empty() {
        tracing::warn!(
            cluster = options.cluster,
            "no cluster of this name is on these servers, so it is founded; there are {}. If this node belongs to \
             one of them, stop it and correct `cluster.name`",
            others.join(", ")
        );
    }
}

/// The names of all streams of the servers; `None` if they do not list them in time.
async fn stream_names(access: &Access) -> Option<Vec<String>> {
    let names = access.requests.stream_names().filter_map(|name| future::ready(name.ok())).collect::<Vec<_>>();
    tokio::time::timeout(NAMES_TIMEOUT, names).await.ok()
}

/// Where an incarnation comes from: the copy of a node.
#[derive(Debug)]
pub(crate) struct Origin {
    /// `None` if it is the store of a node on its own.
    incarnation: Option<u64>,
    shards: Shards,
    hash_key: [u8; 16],
    /// The position of each log up to which the copy is complete.
    ends: Vec<(LogId, u64)>,
}

impl Origin {
    /// The origin that a store is.
    ///
    /// # Errors
    /// `OtherCluster` if it is a copy of a cluster of another name, or those of the store.
    pub(crate) fn of(storage: &Storage, options: &ClusterOptions) -> Result<Self, ClusterError> {
        let Some(ClusterIdentity { name, incarnation, shards, hash_key }) = storage.cluster()? else {
            let (shards, hash_key) = (options.shards, storage.hash_key()?);
            return Ok(Self { incarnation: None, shards, hash_key, ends: Vec::new() });
        };
        if name != options.cluster {
            return Err(ClusterError::OtherCluster { cluster: options.cluster.clone(), of: name });
        }
        let logs = std::iter::once(LogId::Catalog).chain(shards.all().map(LogId::Shard));
        let ends = logs.map(|log| Ok((log, end_of(storage, log)?))).collect::<Result<_, ClusterError>>()?;
        Ok(Self { incarnation: Some(incarnation), shards, hash_key, ends })
    }
}

/// The number of batches that the logs in the servers have beyond this copy, after a check that the next incarnation may
/// begin with it.
///
/// # Errors
/// `OutdatedCopy`, `OtherFounding`, or those of the servers.
pub(crate) async fn batches_beyond(
    access: &Access,
    options: &ClusterOptions,
    origin: &Origin,
) -> Result<u64, ClusterError> {
    let (stream, subject) = Names::incarnations(&options.cluster);
    let incarnations = Link { access: access.clone(), stream, subject };
    let known = stream_names(access).await.ok_or_else(|| ClusterError::Stream {
        action: "find",
        stream: incarnations.stream.clone(),
        reason: "the servers do not list their streams in time".to_owned(),
    })?;
    if !known.contains(&incarnations.stream) {
        return Ok(0);
    }
    let last = incarnations.extent_at_start().await?.last;
    check_follows(&incarnations, options, origin, last).await?;
    let names = Names { cluster: options.cluster.clone(), incarnation: last };
    let mut beyond = 0;
    for (log, end) in &origin.ends {
        let link = names.link(access, *log);
        if known.contains(&link.stream) {
            beyond += link.extent_at_start().await?.last.saturating_sub(*end);
        }
    }
    Ok(beyond)
}

/// Checks that the incarnation after `last`, the last one of the servers, may begin with this copy.
async fn check_follows(link: &Link, options: &ClusterOptions, origin: &Origin, last: u64) -> Result<(), ClusterError> {
    let of = origin.incarnation.unwrap_or(0);
    if of < last {
        let of = match origin.incarnation {
            Some(of) => format!("of incarnation {of}"),
            None => "that of a node on its own".to_owned(),
        };
        return Err(ClusterError::OutdatedCopy { cluster: options.cluster.clone(), last, of });
    }
    // Each founding has a key of its own, which all incarnations keep.
    if last > 0 && read(link, options, last).await?.0.hash_key != origin.hash_key {
        return Err(ClusterError::OtherFounding { cluster: options.cluster.clone() });
    }
    Ok(())
}

/// Appends the identity of the next incarnation, which begins with this copy, and deletes the logs of those before.
pub(crate) async fn begin(
    access: &Access,
    options: &ClusterOptions,
    origin: &Origin,
    abort: watch::Receiver<bool>,
) -> Result<ClusterIdentity, ClusterError> {
    let (stream, subject) = Names::incarnations(&options.cluster);
    let link = Link { access: access.clone(), stream, subject };
    link.create(&options.streams).await?;
    let last = link.extent().await?.last;
    check_follows(&link, options, origin, last).await?;
    let of = origin.incarnation.unwrap_or(0);
    let hash_key = hex(&origin.hash_key);
    let incarnation = Incarnation { shards: origin.shards.count(), hash_key, from: Some(of) };
    let message = Bytes::from(serde_json::to_vec(&incarnation).expect("numbers and texts become JSON"));
    // The stream may be lost too: what is missing before it is filled, so that its place is its number.
    for place in last..=of {
        let appender = Appender {
            link: link.clone(),
            retry_wait: options.timing.retry_wait,
            abort: abort.clone(),
            log: LogId::Catalog,
            bytes_max: message.len(),
        };
        match appender.append(place, &message).await {
            Outcome::Appended { .. } => {}
            outcome => return Err(failed(&link, format!("incarnation {} was not begun: {outcome:?}", of + 1))),
        }
    }
    let Origin { shards, hash_key, .. } = *origin;
    let identity = ClusterIdentity { name: options.cluster.clone(), incarnation: of + 1, shards, hash_key };
    delete_logs_before(access, &identity).await;
    Ok(identity)
}

/// Deletes the logs of earlier incarnations: no node reads them, and an erasure does not reach them.
async fn delete_logs_before(access: &Access, identity: &ClusterIdentity) {
    let cluster = &identity.name;
    let is_earlier = |stream: &String| {
        Names::incarnation_of(cluster, stream).is_some_and(|incarnation| incarnation < identity.incarnation)
    };
    let Some(names) = stream_names(access).await else {
        tracing::warn!(
            cluster,
            "the servers do not list their streams: logs of earlier incarnations may be left in them"
        );
        return;
    };
    for stream in names.iter().filter(|stream| is_earlier(stream)) {
        if let Err(error) = access.requests.delete_stream(stream).await {
            tracing::warn!(stream, %error, "a log of an earlier incarnation was not deleted: delete its stream");
        }
    }
}

/// The number of the last incarnation.
pub(crate) async fn last(access: &Access, cluster: &str) -> Result<u64, ClusterError> {
    let (stream, subject) = Names::incarnations(cluster);
    Ok(Link { access: access.clone(), stream, subject }.extent().await?.last)
}

fn hex(key: &[u8]) -> String {
    key.iter().map(|byte| format!("{byte:02x}")).collect()
}

async fn read(link: &Link, options: &ClusterOptions, last: u64) -> Result<(ClusterIdentity, bool), ClusterError> {
    for _ in 0..READ_ATTEMPTS {
        if let Some(message) = link.message(last).await {
            return parse(&options.cluster, last, &message.payload).map_err(|reason| failed(link, reason));
        }
        tokio::time::sleep(Duration::from_millis(250)).await;
    }
    Err(failed(link, format!("no server shows message {last}")))
}

fn found(options: &ClusterOptions) -> Result<Bytes, ClusterError> {
    let mut key = [0; 16];
    getrandom::fill(&mut key).map_err(|error| ClusterError::Random { reason: error.to_string() })?;
    let incarnation = Incarnation { shards: options.shards.count(), hash_key: hex(&key), from: None };
    Ok(serde_json::to_vec(&incarnation).expect("numbers and texts become JSON").into())
}

fn parse(cluster: &str, number: u64, message: &[u8]) -> Result<(ClusterIdentity, bool), String> {
    let incarnation: Incarnation = serde_json::from_slice(message).map_err(|error| error.to_string())?;
    let shards = Shards::new(incarnation.shards).ok_or("the number of shards is out of range")?;
    let digits = incarnation.hash_key.as_bytes();
    let mut hash_key = [0; 16];
    if digits.len() != 2 * hash_key.len() {
        return Err("the hash key has a wrong length".to_owned());
    }
    for (byte, pair) in hash_key.iter_mut().zip(digits.chunks_exact(2)) {
        let pair = str::from_utf8(pair).map_err(|error| error.to_string())?;
        *byte = u8::from_str_radix(pair, 16).map_err(|error| error.to_string())?;
    }
    let identity = ClusterIdentity { name: cluster.to_owned(), incarnation: number, shards, hash_key };
    Ok((identity, incarnation.from.is_some()))
}

fn failed(link: &Link, reason: String) -> ClusterError {
    ClusterError::Identity { stream: link.stream.clone(), reason }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a panic is how a test fails")]
mod tests {
    use super::*;

    #[test]
    fn identities_keep_their_form() {
        let message = r#"{"shards":6,"hash_key":"000102030405060708090a0b0c0d0e0f","from":null}"#;
        let (identity, is_from_copy) = parse("main", 2, message.as_bytes()).unwrap();
        assert!(!is_from_copy && parse("main", 2, message.replace("null", "1").as_bytes()).unwrap().1);
        let hash_key = std::array::from_fn(|at| u8::try_from(at).unwrap());
        let shards = Shards::new(6).unwrap();
        assert_eq!(identity, ClusterIdentity { name: "main".to_owned(), incarnation: 2, shards, hash_key });
        for wrong in ["{}", &message.replace("6,", "0,"), &message.replace("0f\"", "\""), &message.replace("0f", "0g")]
        {
            assert!(parse("main", 2, wrong.as_bytes()).is_err(), "{wrong}");
        }
    }
}
