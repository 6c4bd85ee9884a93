//! A node's copy of a cluster's store.

use std::fs;
use std::path::Path;

use celeris_model::{LogId, Shard};

use crate::catalog_log::{CatalogLog, Changes};
use crate::database::{Change, Column, Database};
use crate::directory::Directory;
use crate::error::StorageError;
use crate::health::Health;
use crate::items::ChangedItem;
use crate::log::{AppliedGroup, Journal, Log, Ticket};
use crate::registry::RegistryKey;

/// The logs of a node's copy of a cluster's store: those of the shards, and that of the registry and
/// the items.
///
/// A log is either followed, by [`Replica::apply`], or owned, during a *term*: then the store
/// appends to its [`Journal`] whatever is written.
#[derive(Clone, Copy)]
pub struct Replica<'s> {
    pub(crate) log: &'s Log,
    pub(crate) catalog: &'s CatalogLog,
    pub(crate) health: &'s Health,
    pub(crate) database: &'s Database,
    pub(crate) directory: &'s Directory,
}

/// What was applied.
#[derive(Debug, Clone, PartialEq)]
pub enum Applied {
    /// A group of a shard.
    Group(AppliedGroup),
    /// The documents of the registry and the items that one commit has changed.
    Catalog { documents: Vec<RegistryKey>, items: Vec<ChangedItem> },
}

impl Replica<'_> {
    /// All logs.
    pub fn logs(&self) -> impl Iterator<Item = LogId> + use<> {
        std::iter::once(LogId::Catalog).chain(self.log.shards().all().map(LogId::Shard))
    }

    /// The position in a log up to which the store is complete, as given with the last write;
    /// `None` if there was none.
    ///
    /// # Errors
    /// `Corrupt`, `CorruptLog` or `Database`.
    pub fn cursor(&self, log: LogId) -> Result<Option<Vec<u8>>, StorageError> {
        match log {
            LogId::Catalog => self.catalog.cursor(),
            LogId::Shard(shard) => self.log.cursor(shard),
        }
    }

    /// Writes what another node has appended to a log, and the cursor after it. `entries` may be
    /// empty. Each is applied once, in the order of the log. Not synced: see [`Replica::sync`].
    ///
    /// A group of a shard is passed to `before` first: what it erases beside the logs is erased there, so that
    /// a crash in between leaves nothing.
    ///
    /// # Errors
    /// Those of `before`; `Diverged` if it does not follow on what is here, or during a term; `Poisoned`,
    /// `Closed`, `Corrupt`, `CorruptLog` or `Database`. Nothing is written then.
    pub fn apply(
        &self,
        log: LogId,
        entries: &[u8],
        cursor: &[u8],
        before: impl FnOnce(&AppliedGroup) -> Result<(), StorageError>,
    ) -> Result<Applied, StorageError> {
        match log {
            LogId::Catalog => self.catalog.apply(entries, cursor).map(|changes| changed_by(&changes)),
            LogId::Shard(shard) => self.log.apply(shard, entries, cursor, before).map(Applied::Group),
        }
    }

    /// Begins a term: this node owns the log and appends to `journal`, whose next position is that
    /// after [`Replica::cursor`]. The previous term has ended.
    ///
    /// # Errors
    /// `Closed`, `Poisoned`, or `Io` if no thread can be started.
    pub fn begin_term(&self, log: LogId, journal: Box<dyn Journal>) -> Result<(), StorageError> {
        match log {
            LogId::Catalog => self.catalog.begin_term(journal),
            LogId::Shard(shard) => self.log.begin_term(shard, journal),
        }
    }

    /// In a term, writes the end of the replicated log of a shard as the cursor, after all groups before. The ticket is
    /// durable once that is done; the cursor stays as it was if the log grew meanwhile.
    ///
    /// # Errors
    /// `NotOwner`, `Overloaded`, `Fenced`, `Poisoned` or `Closed`.
    pub fn note_end(&self, shard: Shard) -> Result<Ticket, StorageError> {
        self.log.note_end(shard)
    }

    /// Rejects writes with `NotOwner`, appends what is queued, and ends the term. Blocks the thread.
    pub fn end_term(&self, log: LogId) {
        match log {
            LogId::Catalog => self.catalog.end_term(),
            LogId::Shard(shard) => self.log.end_term(shard),
        }
    }

    /// Writes a copy of the store as of one moment, without decisions, into `folder`, which is created: a
    /// data directory with which another node of the cluster can start.
    ///
    /// # Errors
    /// `Io` or `Database`; the folder is to be removed then.
    pub fn copy_to(&self, folder: &Path) -> Result<(), StorageError> {
        fs::create_dir_all(folder).map_err(StorageError::io("create", folder))?;
        self.database.copy_to(&folder.join("db"))?;
        self.directory.write_format_of_copy(folder)
    }

    /// Syncs everything written, and returns the cursors that survive a power failure from then on.
    ///
    /// # Errors
    /// `Corrupt`, `CorruptLog` or `Database`; `Poisoned` if a read has found damage, since other nodes have what
    /// is damaged here. A failed sync poisons the store too.
    pub fn sync(&self) -> Result<Vec<(LogId, Vec<u8>)>, StorageError> {
        if let Some(damage) = self.database.damage() {
            self.health.poison(damage);
        }
        self.health.check()?;
        let mut cursors = Vec::new();
        for log in self.logs() {
            cursors.extend(self.cursor(log)?.map(|cursor| (log, cursor)));
        }
        self.database.sync().inspect_err(|error| self.health.poison(&error.to_string()))?;
        Ok(cursors)
    }
}

fn changed_by(changes: &Changes) -> Applied {
    let document = |change: &Change| match change {
        Change::Put(Column::Registry, key, _) | Change::Delete(Column::Registry, key) => RegistryKey::parse(key),
        _ => None,
    };
    let items = changes.iter().filter_map(ChangedItem::by).collect();
    Applied::Catalog { documents: changes.iter().filter_map(document).collect(), items }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a panic is how a test fails")]
mod tests {
    use std::ops::ControlFlow;

    use celeris_model::{
        FeatureOrigin, ItemId, ModelId, ObservationId, Partition, Record, RecordKind, Sequence, Shard, Shards,
        SourceId, StreamName, Timestamp, UserEpoch, UserId, VersionId,
    };
    use rand::seq::IndexedRandom as _;
    use rand::{RngExt as _, SeedableRng as _};
    use rand_chacha::ChaCha8Rng;
    use serde_json::json;

    use super::*;
    use crate::database::{Access, KeyRange};
    use crate::memory_log::{MemoryLog, cursor_at, position_of};
    use crate::{
        AckMode, Append, Appended, ClusterIdentity, FrozenFeatures, ItemWrite, Placed, RegistryBatch, SourcePosition,
        Storage, StorageOptions,
    };

    fn identity() -> ClusterIdentity {
        ClusterIdentity { name: "test".to_owned(), incarnation: 1, shards: Shards::new(3).unwrap(), hash_key: [7; 16] }
    }

    /// A cluster of stores with their replicated logs.
    struct Cluster {
        dirs: Vec<tempfile::TempDir>,
        nodes: Vec<Storage>,
        logs: Vec<(LogId, MemoryLog)>,
    }

    fn open(dir: &Path) -> Storage {
        Storage::open_replica(dir, &StorageOptions::default(), &identity()).unwrap()
    }

    impl Cluster {
        fn new(nodes: usize) -> Self {
            let dirs: Vec<_> = (0..nodes).map(|_| tempfile::tempdir().unwrap()).collect();
            let nodes: Vec<_> = dirs.iter().map(|dir| open(dir.path())).collect();
            let logs = nodes[0].replica().unwrap().logs().map(|log| (log, MemoryLog::default())).collect();
            let cluster = Self { dirs, nodes, logs };
            for log in cluster.nodes[0].replica().unwrap().logs() {
                cluster.begin(0, log);
            }
            cluster
        }

        fn shared(&self, log: LogId) -> &MemoryLog {
            &self.logs.iter().find(|(id, _)| *id == log).unwrap().1
        }

        /// Applies what node `follower` lacks of a log.
        fn follow(&self, follower: usize, log: LogId) {
            let replica = self.nodes[follower].replica().unwrap();
            self.shared(log).follow(replica, log).unwrap();
        }

        fn begin(&self, owner: usize, log: LogId) {
            self.shared(log).begin((owner, self.nodes[owner].replica().unwrap()), log).unwrap();
        }

        /// Another node takes a log over, after it has applied all of it.
        fn hand_over(&self, log: LogId, to: usize) {
            let from = self.shared(log).owner();
            self.nodes[from].replica().unwrap().end_term(log);
            self.follow(to, log);
            self.begin(to, log);
        }

        fn owner_of(&self, user: &UserId) -> &Storage {
            let shard = LogId::Shard(self.nodes[0].log().shard_of(user));
            &self.nodes[self.shared(shard).owner()]
        }

        fn settle(&self) {
            for (log, shared) in &self.logs {
                let owner = shared.owner();
                (0..self.nodes.len()).filter(|node| *node != owner).for_each(|node| self.follow(node, *log));
            }
        }
    }

    /// All entries of a store in the columns that are the same on every node.
    fn contents(storage: &Storage) -> Vec<(Column, Vec<u8>, Vec<u8>)> {
        let mut contents = Vec::new();
        let derived = [Column::Snapshots, Column::Checkpoints];
        for column in Column::MAIN.iter().filter(|column| !derived.contains(column)) {
            let everything = KeyRange::from(Vec::new());
            let visited = storage.database().scan(*column, everything, Access::Sweep, |key, value| {
                contents.push((*column, key.to_vec(), value.to_vec()));
                Ok(ControlFlow::Continue(()))
            });
            visited.unwrap();
        }
        contents
    }

    fn films() -> StreamName {
        StreamName::new("films").unwrap()
    }

    fn user(number: usize) -> UserId {
        UserId::new(format!("user-{number}")).unwrap()
    }

    fn record(kind: RecordKind, user: &UserId, epoch: u64) -> Record {
        Record {
            kind,
            user: user.clone(),
            user_epoch: UserEpoch(epoch),
            item: (kind == RecordKind::Observe).then(|| ItemId::new(format!("item-{}", epoch % 7)).unwrap()),
            label: epoch as f32,
            first_label: None,
            weight: 1.0,
            feedback: None,
            timestamp: Timestamp(epoch.cast_signed()),
            observation_id: None,
            decision: None,
            context: None,
            predictions: Vec::new(),
            targets: Vec::new(),
        }
    }

    fn append(storage: &Storage, record: Record, frozen: Vec<FrozenFeatures>) -> Result<Placed, StorageError> {
        let notes_item = record.user_epoch.0.is_multiple_of(2);
        // Observations alone come from messages.
        let from_message = record.kind == RecordKind::Observe && record.user_epoch.0.is_multiple_of(3);
        let source = from_message.then(|| next_message(storage, &record.user));
        let append = Append { stream: films(), record, frozen, notes_item, source, ack: AckMode::Wait };
        match storage.log().append(append)? {
            Appended::New(placed) => Ok(placed),
            Appended::Existing(existing) => panic!("{existing:?}"),
        }
    }

    /// The next message for the user's shard, of which all earlier events are durable.
    fn next_message(storage: &Storage, user: &UserId) -> SourcePosition {
        let source = SourceId::new("nats/clicks").unwrap();
        let last = storage.log().source_position(storage.log().shard_of(user), &source).unwrap();
        SourcePosition { source, offset: last.map_or(0, |last| last + 1) }
    }

    fn frozen(item: u64) -> FrozenFeatures {
        FrozenFeatures {
            model: ModelId(1),
            version: VersionId(item),
            item: ItemId::new(format!("item-{item}")).unwrap(),
            offset: 0.5,
            features: vec![item as f32, 1.0],
            origin: FeatureOrigin::Attributes,
            attributes: None,
        }
    }

    /// One random event of a user.
    async fn step(storage: &Storage, rng: &mut ChaCha8Rng, user: &UserId) {
        let epoch = storage.histories().last_epoch(&films(), user).unwrap().0 + 1;
        let history = storage.histories().of(&films(), user).unwrap();
        let observations: Vec<Sequence> = history
            .iter()
            .filter(|(_, record)| record.kind == RecordKind::Observe)
            .map(|(sequence, _)| *sequence)
            .collect();
        let target = observations.choose(rng).copied();
        let placed = match (rng.random_range(0..20), target) {
            (0, _) => append(storage, record(RecordKind::Erase, user, epoch), Vec::new()),
            (1..4, Some(target)) => {
                let targets = vec![target];
                append(storage, Record { targets, ..record(RecordKind::Correct, user, epoch) }, Vec::new())
            }
            (4..6, Some(target)) => {
                let targets = vec![target];
                append(storage, Record { targets, ..record(RecordKind::Retract, user, epoch) }, Vec::new())
            }
            (6, _) => {
                let shard = storage.log().shard_of(user);
                let ticket = storage.items().freeze(shard, &frozen(epoch)).unwrap();
                return ticket.durable().await.unwrap();
            }
            (9, _) => {
                let attributes = json!({ "epoch": epoch }).as_object().unwrap().clone();
                let attributes = if epoch.is_multiple_of(4) { serde_json::Map::new() } else { attributes };
                let ticket = storage.user_attributes().put(&films(), user, &attributes).unwrap();
                return ticket.durable().await.unwrap();
            }
            (8, _) => {
                let shard = storage.log().shard_of(user);
                return storage.log().pass_over(shard, &next_message(storage, user)).unwrap().durable().await.unwrap();
            }
            (kind, _) => {
                let observation_id = (kind % 2 == 0).then(|| ObservationId::new(format!("o-{epoch}")).unwrap());
                let observation = Record { observation_id, ..record(RecordKind::Observe, user, epoch) };
                append(storage, observation, if kind == 7 { vec![frozen(epoch)] } else { Vec::new() })
            }
        };
        let placed = placed.unwrap();
        // The next event of the user reads this one.
        placed.durable().await.unwrap();
    }

    #[tokio::test]
    async fn copies_are_equal_to_the_bit_across_changes_of_owners() {
        let cluster = Cluster::new(3);
        let mut rng = ChaCha8Rng::seed_from_u64(11);
        for round in 0..600 {
            let user = user(rng.random_range(0..12));
            step(cluster.owner_of(&user), &mut rng, &user).await;
            if round % 40 == 39 {
                let (log, _) = cluster.logs.choose(&mut rng).unwrap();
                cluster.hand_over(*log, rng.random_range(0..3));
            }
            if round % 25 == 0 {
                let catalog = &cluster.nodes[cluster.shared(LogId::Catalog).owner()];
                let attributes = json!({ "round": round });
                let item = ItemId::new(format!("item-{}", round % 7)).unwrap();
                let write = ItemWrite::Describe(&item, attributes.as_object().unwrap());
                catalog.items().write(&films(), [write]).unwrap();
                let mut batch = RegistryBatch::new();
                let key = RegistryKey::new(["model", "films"]).unwrap();
                batch.put(key, &round).unwrap();
                catalog.registry().commit(&batch).unwrap();
            }
        }
        cluster.settle();
        let expected = contents(&cluster.nodes[0]);
        assert!(expected.len() > 600);
        for node in &cluster.nodes[1..] {
            assert!(contents(node) == expected, "the copies differ");
            assert_eq!(node.log().watermark(&films()), cluster.nodes[0].log().watermark(&films()));
            assert_eq!(node.unscrubbed(), cluster.nodes[0].unscrubbed());
        }
        for node in &cluster.nodes {
            node.verify().unwrap();
        }
    }

    #[tokio::test]
    async fn a_fenced_owner_acknowledges_nothing_and_gives_its_sequences_up() {
        let cluster = Cluster::new(2);
        let alice = user(1);
        let log = LogId::Shard(cluster.nodes[0].log().shard_of(&alice));
        let observe = |epoch| record(RecordKind::Observe, &alice, epoch);
        append(&cluster.nodes[0], observe(1), Vec::new()).unwrap().durable().await.unwrap();
        // Node 1 takes over, and node 0 does not know.
        cluster.follow(1, log);
        cluster.begin(1, log);
        let lost = append(&cluster.nodes[0], Record { label: -1.0, ..observe(2) }, Vec::new()).unwrap();
        assert!(matches!(lost.durable().await, Err(StorageError::Fenced)));
        assert!(matches!(append(&cluster.nodes[0], observe(2), Vec::new()), Err(StorageError::Fenced)));
        let placed = append(&cluster.nodes[1], observe(2), Vec::new()).unwrap();
        assert_eq!(placed.sequence(), lost.sequence(), "the sequence is used again");
        placed.durable().await.unwrap();
        cluster.nodes[0].replica().unwrap().end_term(log);
        assert!(matches!(append(&cluster.nodes[0], observe(2), Vec::new()), Err(StorageError::NotOwner)));
        cluster.settle();
        assert!(contents(&cluster.nodes[0]) == contents(&cluster.nodes[1]));
        // The fenced node owns it again.
        cluster.hand_over(log, 0);
        let placed = append(&cluster.nodes[0], observe(3), Vec::new()).unwrap();
        assert_eq!(placed.durable().await.unwrap().sequence, Sequence(3));
    }

    #[tokio::test]
    async fn groups_that_do_not_follow_are_refused_and_change_nothing() {
        let cluster = Cluster::new(2);
        let alice = user(1);
        let shard = cluster.nodes[0].log().shard_of(&alice);
        let log = LogId::Shard(shard);
        for epoch in 1..=3 {
            let placed = append(&cluster.nodes[0], record(RecordKind::Observe, &alice, epoch), Vec::new()).unwrap();
            placed.durable().await.unwrap();
        }
        let entries = cluster.shared(log).entries();
        let follower = cluster.nodes[1].replica().unwrap();
        let other = identity().shards.all().find(|other| *other != shard).unwrap();
        follower.apply(log, &entries[0], &cursor_at(1), |_| Ok(())).unwrap();
        let before = contents(&cluster.nodes[1]);
        for (log, group) in [
            (log, &entries[0]),
            (log, &entries[2]),
            (LogId::Shard(other), &entries[1]),
            (log, &entries[1][..entries[1].len() - 1].to_vec()),
        ] {
            let refused = follower.apply(log, group, &cursor_at(9), |_| Ok(()));
            assert!(matches!(refused, Err(StorageError::Diverged { .. })), "{refused:?}");
        }
        let of_owner = cluster.nodes[0].replica().unwrap().apply(log, &[], &cursor_at(9), |_| Ok(()));
        assert!(matches!(of_owner, Err(StorageError::Diverged { .. })), "{of_owner:?}");
        assert!(contents(&cluster.nodes[1]) == before);
        follower.apply(log, &[], &cursor_at(2), |_| Ok(())).unwrap();
        assert_eq!(position_of(follower.cursor(log).unwrap()), 2);
    }

    #[tokio::test]
    async fn a_copy_reads_on_from_its_cursors_after_a_restart() {
        let dir = tempfile::tempdir().unwrap();
        let cluster = Cluster::new(1);
        let mut rng = ChaCha8Rng::seed_from_u64(12);
        let mut follower = open(dir.path());
        for round in 0..60 {
            let user = user(rng.random_range(0..6));
            step(&cluster.nodes[0], &mut rng, &user).await;
            for (log, shared) in &cluster.logs {
                let replica = follower.replica().unwrap();
                shared.follow(replica, *log).unwrap();
            }
            if round % 20 == 0 {
                let synced = follower.replica().unwrap().sync().unwrap();
                assert!(synced.iter().any(|(_, cursor)| position_of(Some(cursor.clone())) > 0));
                drop(follower);
                follower = open(dir.path());
            }
        }
        // A store scrubs what is left to scrub when it is opened.
        let note = crate::layout::keys::all_unscrubbed().from;
        let kept = |storage: &Storage| -> Vec<_> {
            let is_note = |column, key: &[u8]| column == Column::Erasures && key.starts_with(&note);
            contents(storage).into_iter().filter(|(column, key, _)| !is_note(*column, key)).collect()
        };
        assert!(kept(&follower) == kept(&cluster.nodes[0]));
    }

    #[test]
    fn a_copy_belongs_to_one_cluster() {
        let (of_cluster, alone) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let options = StorageOptions::default();
        drop(open(of_cluster.path()));
        drop(Storage::open(alone.path(), &options).unwrap());
        let refused = |opened: Result<Storage, StorageError>| opened.err().unwrap().to_string();
        let as_node = refused(Storage::open(of_cluster.path(), &options));
        assert!(as_node.contains("it is a copy of cluster test (incarnation 1, 3 shards)"), "{as_node}");
        let as_copy = refused(Storage::open_replica(alone.path(), &options, &identity()));
        assert!(as_copy.contains("it belongs to a node on its own"), "{as_copy}");
        let next = ClusterIdentity { incarnation: 2, ..identity() };
        let of_next = refused(Storage::open_replica(of_cluster.path(), &options, &next));
        assert!(of_next.contains("not of cluster test (incarnation 2"), "{of_next}");
        let other_key = ClusterIdentity { hash_key: [8; 16], ..identity() };
        let with_other_key = refused(Storage::open_replica(of_cluster.path(), &options, &other_key));
        assert!(with_other_key.contains("a copy of another cluster of this name"), "{with_other_key}");
        assert!(Storage::open_replica(of_cluster.path(), &options, &identity()).unwrap().replica().is_some());
        assert_eq!(identity().shards.partitions(Shard::default()).next(), Partition::from_index(0));
    }

    #[tokio::test]
    async fn a_copy_of_a_copy_follows_on_where_it_was_made() {
        let mut cluster = Cluster::new(2);
        let mut rng = ChaCha8Rng::seed_from_u64(3);
        for part in 0..2 {
            for _ in 0..60 {
                let user = user(rng.random_range(0..5));
                step(cluster.owner_of(&user), &mut rng, &user).await;
            }
            if part == 0 {
                cluster.settle();
                let folder = tempfile::tempdir().unwrap();
                cluster.nodes[1].replica().unwrap().copy_to(&folder.path().join("copy")).unwrap();
                cluster.nodes.push(open(&folder.path().join("copy")));
                cluster.dirs.push(folder);
            }
        }
        cluster.settle();
        let copied = &cluster.nodes[2];
        assert!(contents(copied) == contents(&cluster.nodes[0]), "the copies differ");
        copied.verify().unwrap();
    }

    #[tokio::test]
    async fn a_store_of_a_node_on_its_own_becomes_the_origin_of_a_cluster() {
        let folder = tempfile::tempdir().unwrap();
        let options = StorageOptions::default();
        let mut rng = ChaCha8Rng::seed_from_u64(5);
        let alone = Storage::open(folder.path(), &options).unwrap();
        for _ in 0..60 {
            let user = user(rng.random_range(0..5));
            step(&alone, &mut rng, &user).await;
        }
        append(&alone, record(RecordKind::Observe, &user(9), 1), vec![frozen(3)]).unwrap().durable().await.unwrap();
        let first = ClusterIdentity { hash_key: alone.hash_key().unwrap(), ..identity() };
        assert_eq!(alone.cluster().unwrap(), None);
        let watermark = alone.log().watermark(&films());
        drop(alone);
        let origin = Storage::open_existing(folder.path(), &options).unwrap();
        let wrong = ClusterIdentity { hash_key: [0; 16], ..first.clone() };
        assert!(matches!(origin.clone().begin_incarnation(&wrong), Err(StorageError::UnknownFormat { .. })));
        origin.begin_incarnation(&first).unwrap();
        assert!(matches!(Storage::open(folder.path(), &options), Err(StorageError::UnknownFormat { .. })));
        let of = (ModelId(1), VersionId(3));
        let copy = Storage::open_replica(folder.path(), &options, &first).unwrap();
        assert_eq!(copy.cluster().unwrap(), Some(first.clone()));
        assert_eq!(copy.log().watermark(&films()), watermark);
        for shard in first.shards.all() {
            let item = frozen(3).item;
            assert_eq!(copy.items().frozen(of, shard, &item).unwrap(), Some(frozen(3)));
        }
        copy.verify().unwrap();
        drop(copy);
        // The next incarnation of the same cluster only.
        let other = ClusterIdentity { name: "other".to_owned(), incarnation: 2, ..first.clone() };
        let second = ClusterIdentity { incarnation: 2, ..first.clone() };
        for (next, accepted) in [(&other, false), (&first, false), (&second, true), (&second, false)] {
            let origin = Storage::open_existing(folder.path(), &options).unwrap();
            assert_eq!(origin.begin_incarnation(next).is_ok(), accepted, "{next:?}");
        }
        let copy = Storage::open_replica(folder.path(), &options, &second).unwrap();
        let replica = copy.replica().unwrap();
        assert!(replica.logs().all(|log| replica.cursor(log).unwrap().is_none()));
        assert_eq!(copy.log().watermark(&films()), watermark);
    }

    #[tokio::test]
    async fn a_copy_in_which_a_reading_finds_damage_accepts_no_more_writes() {
        let mut cluster = Cluster::new(1);
        let mut rng = ChaCha8Rng::seed_from_u64(12);
        for _ in 0..200 {
            let user = user(rng.random_range(0..12));
            step(&cluster.nodes[0], &mut rng, &user).await;
        }
        cluster.nodes.clear();
        let dir = cluster.dirs[0].path();
        let files = fs::read_dir(dir.join("db")).unwrap().map(|entry| entry.unwrap().path());
        let mut found = 0;
        for file in files.filter(|file| file.extension().is_some_and(|extension| extension == "sst")) {
            let whole = fs::read(&file).unwrap();
            let mut damaged = whole.clone();
            damaged[40] ^= 1;
            fs::write(&file, &damaged).unwrap();
            // The start finds what it reads.
            if let Ok(storage) = Storage::open_replica(dir, &StorageOptions::default(), &identity()) {
                let all = || KeyRange::from(Vec::new());
                let read = |column: &Column| {
                    storage.database().scan(*column, all(), Access::Sweep, |_, _| Ok(ControlFlow::Continue(())))
                };
                if Column::MAIN.iter().any(|column| read(column).is_err()) {
                    found += 1;
                    assert!(matches!(storage.replica().unwrap().sync(), Err(StorageError::Poisoned { .. })));
                    assert!(matches!(storage.health(), Err(StorageError::Poisoned { .. })));
                }
            }
            fs::write(&file, &whole).unwrap();
        }
        assert!(found > 0, "each start has found the damage");
    }

    #[test]
    fn many_items_are_several_commits_and_one_change_too_large_is_none() {
        let cluster = Cluster::new(2);
        let text = "x".repeat(60 << 10);
        let attributes = json!({ "text": text });
        let items: Vec<ItemId> = (0..20).map(|item| ItemId::new(format!("item-{item}")).unwrap()).collect();
        let writes = items.iter().map(|item| ItemWrite::Describe(item, attributes.as_object().unwrap()));
        let catalog = &cluster.nodes[0];
        assert_eq!(catalog.items().write(&films(), writes).unwrap(), 4);
        assert_eq!(cluster.shared(LogId::Catalog).end(), 4);
        let mut batch = RegistryBatch::new();
        batch.put(RegistryKey::new(["large"]).unwrap(), &"x".repeat(1 << 20)).unwrap();
        assert!(matches!(catalog.registry().commit(&batch), Err(StorageError::CommitTooLarge { .. })));
        catalog.registry().commit(&RegistryBatch::new()).unwrap();
        cluster.settle();
        assert!(contents(&cluster.nodes[1]) == contents(catalog), "the copies differ");
    }
}
