//! Encoding and sharing of objects.

use std::collections::HashMap;
use std::sync::Arc;

use celeris_pipelines::PipelineError;
use celeris_pipelines::objects::{
    Centroids, Components, Content, Dictionary, EmbeddingTable, Idf, Kind, Moments, Object, ObjectId, Objects, Weights,
};
use proptest::prelude::*;

fn samples() -> Vec<Content> {
    let keys = Dictionary::new(["a", "bc"]).unwrap();
    vec![
        Content::Dictionary(Arc::new(Dictionary::new(["", "good", "a very long n-gram of words", "東京"]).unwrap())),
        Content::Weights(Arc::new(Weights::new(vec![0.5, -1.0], vec![1.0, 2.0, 3.0, 4.0]).unwrap())),
        Content::Idf(Arc::new(Idf::new(vec![1.0, 2.5]).unwrap())),
        Content::Moments(Arc::new(Moments::new(vec![1.0], vec![0.0], vec![2.0]).unwrap())),
        Content::Centroids(Arc::new(Centroids::new(2, vec![0.0, 1.0, 2.0, 3.0]).unwrap())),
        Content::Components(Arc::new(Components::new(vec![0.0, 1.0], vec![1.0, 0.0]).unwrap())),
        Content::Embedding(Arc::new(EmbeddingTable::new(keys, 2, vec![0.0, 1.0, 2.0, 3.0]).unwrap())),
        Object::decode(&crate::networks::object(&[vec![0.5, -1.0, 0.25, 2.0]])).unwrap().content().clone(),
    ]
}

#[test]
fn encoded_objects_are_decoded() {
    for content in samples() {
        let bytes = content.encode();
        let object = Object::decode(&bytes).unwrap();
        assert_eq!(object.content().kind(), content.kind());
        assert_eq!(object.content().encode(), bytes);
        assert_eq!((object.id(), object.encoded_bytes()), (ObjectId::of(&bytes), bytes.len()));
        assert_eq!(ObjectId::parse(&object.id().to_string()), Some(object.id()));
    }
}

#[test]
fn objects_keep_their_stored_form() {
    let hex = |bytes: Vec<u8>| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    let encoded: Vec<String> = samples().iter().map(|content| hex(content.encode())).collect();
    assert_eq!(encoded[1], "43454c4f020102000000020000000000003f000080bf0000803f000000400000404000008040");
    assert_eq!(
        encoded[6],
        "43454c4f0701020000000100020061626302000000020000000000000000008 03f".replace(' ', "") + "0000004000004040"
    );
}

#[test]
fn cut_off_and_longer_bytes_are_refused() {
    for bytes in samples().iter().map(Content::encode) {
        for length in 0..bytes.len() {
            assert!(Object::decode(&bytes[..length]).is_err());
        }
        assert!(Object::decode(&[&bytes[..], &[0]].concat()).is_err());
    }
}

proptest! {
    #![proptest_config(crate::random::cases(3000))]

    #[test]
    fn damaged_bytes_are_refused_or_are_another_object(
        of in 0..7_usize,
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
    ) {
        let mut bytes = samples()[of].encode();
        for (at, byte) in damage {
            let length = bytes.len();
            bytes[at.index(length)] = byte;
        }
        if let Ok(object) = Object::decode(&bytes) {
            prop_assert_eq!(object.content().encode(), bytes);
        }
    }

    #[test]
    fn any_bytes_are_an_object_or_refused(kind in 0..11_u8, body in prop::collection::vec(any::<u8>(), 0..64)) {
        let bytes = [&b"CELO"[..], &[kind, 1], &body].concat();
        if let Ok(object) = Object::decode(&bytes) {
            prop_assert_eq!(object.content().encode(), bytes);
        }
    }

    #[test]
    fn dictionaries_find_their_strings_and_no_others(
        strings in prop::collection::btree_set("[ab c]{0,12}", 1..40),
        others in prop::collection::vec("[ab c]{0,12}", 0..40),
    ) {
        let dictionary = Dictionary::new(&strings).unwrap();
        let columns: HashMap<&String, u32> = strings.iter().zip(0..).collect();
        for string in strings.iter().chain(&others) {
            prop_assert_eq!(dictionary.column(string.as_bytes()), columns.get(string).copied());
        }
    }
}

#[test]
fn equal_objects_are_in_memory_once_and_as_long_as_they_are_used() {
    let objects = Objects::in_memory();
    let bytes = samples()[0].encode();
    let first = objects.insert(&bytes).unwrap();
    let second = objects.insert(&bytes).unwrap();
    assert!(Arc::ptr_eq(&first, &second));
    let facts = objects.facts();
    assert_eq!((facts.len(), facts[0].uses, facts[0].kind), (1, 2, Kind::Dictionary));
    assert_eq!(objects.bytes(), bytes.len());
    let id = first.id();
    drop((first, second));
    assert!(objects.get(id).unwrap().is_none() && objects.facts().is_empty());
}

#[test]
fn evicted_objects_come_back_from_the_loader_which_is_not_trusted() {
    let stored: HashMap<ObjectId, Vec<u8>> =
        samples().iter().map(Content::encode).map(|bytes| (ObjectId::of(&bytes), bytes)).collect();
    let ids: Vec<ObjectId> = stored.keys().copied().collect();
    let wrong = ObjectId::of(b"wrong");
    let failing = ObjectId::of(b"failing");
    let objects = Objects::loading(move |id| match id {
        id if id == wrong => Ok(Some(b"other bytes".to_vec())),
        id if id == failing => Err("the disk is full of holes".to_owned()),
        id => Ok(stored.get(&id).cloned()),
    });
    for id in ids {
        assert_eq!(objects.get(id).unwrap().unwrap().id(), id);
    }
    assert!(matches!(objects.get(wrong), Err(PipelineError::Checksum { expected, .. }) if expected == wrong));
    assert!(matches!(objects.get(failing), Err(PipelineError::Load { id, .. }) if id == failing));
    assert!(objects.get(ObjectId::of(b"absent")).unwrap().is_none());
}
