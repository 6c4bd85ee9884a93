//! Positions in sources are written with the observations of their messages.

use celeris_model::{Shard, SourceId};
use celeris_storage::{Append, Appended, SourcePosition, Storage, StorageError, StorageOptions};

use crate::scenario::{append, id, observation, user};

fn shard() -> Shard {
    Shard::default()
}

fn source() -> SourceId {
    SourceId::new("clicks/kafka/events/3").unwrap()
}

fn message(offset: u64) -> SourcePosition {
    SourcePosition { source: source(), offset }
}

fn position(storage: &Storage) -> Option<u64> {
    storage.log().source_position(shard(), &source()).unwrap()
}

fn from_message(epoch: u64, offset: u64) -> Append {
    let record = observation(&user("alice"), epoch);
    let record = celeris_model::Record { observation_id: Some(id(&format!("o-{epoch}"))), ..record };
    Append { source: Some(message(offset)), ..append(record) }
}

#[tokio::test]
async fn a_position_is_durable_with_its_record_and_each_message_is_taken_once() {
    let folder = tempfile::tempdir().unwrap();
    let open = || Storage::open(folder.path(), &StorageOptions::default()).unwrap();
    let storage = open();
    assert_eq!(position(&storage), None);
    for (epoch, offset) in [(1, 0), (2, 4)] {
        let Appended::New(placed) = storage.log().append(from_message(epoch, offset)).unwrap() else {
            panic!("is new")
        };
        placed.durable().await.unwrap();
        assert_eq!(position(&storage), Some(offset));
    }
    for again in [0, 3, 4] {
        let refused = storage.log().append(from_message(3, again));
        assert!(matches!(refused, Err(StorageError::MessageTaken { .. })), "{refused:?}");
        let refused = storage.log().pass_over(shard(), &message(again));
        assert!(matches!(refused, Err(StorageError::MessageTaken { .. })), "{refused:?}");
    }
    // The observation of this message is in the log, by another way.
    assert!(matches!(storage.log().append(from_message(2, 7)).unwrap(), Appended::Existing(_)));
    storage.log().pass_over(shard(), &message(9)).unwrap().durable().await.unwrap();
    assert_eq!(position(&storage), Some(9));
    storage.close().unwrap();
    drop(storage);
    let storage = open();
    assert_eq!(position(&storage), Some(9));
    let refused = storage.log().append(from_message(3, 9));
    assert!(matches!(refused, Err(StorageError::MessageTaken { .. })), "{refused:?}");
    let Appended::New(placed) = storage.log().append(from_message(3, 10)).unwrap() else { panic!("is new") };
    placed.durable().await.unwrap();
    assert_eq!(position(&storage), Some(10));
}
