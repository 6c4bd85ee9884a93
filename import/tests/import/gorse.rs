//! What Gorse writes: JSON lines, its binary dump, and CSV.

use celeris_import::described::Content;
use celeris_import::labels::{LabelOf, LabelsOf};
use celeris_import::layout::{Layout, Subject};
use celeris_import::{Finding, Input, Rules, find};
use serde_json::{Value, json};

use crate::{Folder, checked, items, rules, taken};

const FEEDBACK: &str = r#"{"FeedbackType":"read","UserId":"u1","ItemId":"i1","Value":0,"Timestamp":"2024-03-01T10:00:00Z","Updated":"2024-03-01T10:00:00Z","Labels":null,"Comment":""}
{"FeedbackType":"like","UserId":"u1","ItemId":"i1","Value":0,"Timestamp":"2024-03-01T10:00:05.25+01:00","Updated":"2024-03-02T00:00:00Z","Labels":null,"Comment":"nice"}
{"FeedbackType":"share","UserId":"u2","ItemId":"i2","Value":2.5,"Timestamp":"0001-01-01T00:00:00Z","Updated":"0001-01-01T00:00:00Z","Labels":{"a":"b"},"Comment":""}
"#;

const ITEMS: &str = r#"{"ItemId":"i1","IsHidden":false,"Categories":["film","war"],"Timestamp":"2024-01-01T00:00:00Z","Labels":{"genre":["a","b"],"price":9.5,"film":{"year":1999,"deep":{"x":true}},"embedding":[0.5,1],"comment":"of a label","gone":null},"Comment":"a film"}
{"ItemId":"i2","IsHidden":true,"Categories":null,"Timestamp":"0001-01-01T00:00:00Z","Labels":["x","y"],"Comment":""}
{"ItemId":"i3","IsHidden":false,"Categories":[],"Timestamp":"0001-01-01T00:00:00Z","Labels":null,"Comment":""}
"#;

const USERS: &str = "{\"UserId\":\"u1\",\"Labels\":{\"age\":\"18\"},\"Comment\":\"\"}\n{\"UserId\":\"u2\",\"Labels\":null,\"Comment\":\"\"}\n";

fn labels_of(texts: &[&str]) -> LabelsOf {
    LabelsOf::new(texts.iter().map(|text| LabelOf::parse(text).unwrap()).collect()).unwrap()
}

fn with_labels(texts: &[&str]) -> Rules {
    Rules { labels_of: labels_of(texts), ..rules(&[]) }
}

fn expected_items() -> Vec<(&'static str, Value)> {
    vec![
        (
            "i1",
            json!({"categories": ["film", "war"], "timestamp": 1_704_067_200_000_i64, "genre": ["a", "b"], "price": 9.5,
                "film.year": 1999, "film.deep.x": true, "embedding": [0.5, 1], "labels.comment": "of a label", "comment": "a film"}),
        ),
        ("i2", json!({"is_hidden": true, "available_until": "1970-01-01T00:00:00Z", "labels": ["x", "y"]})),
        ("i3", json!({})),
    ]
}

/// A field of a message: its number, and a varint, eight bytes or a text.
enum Field<'a> {
    Varint(u64),
    Double(f64),
    Text(&'a str),
    Message(Vec<u8>),
}

fn varint(mut number: u64, out: &mut Vec<u8>) {
    while number >= 0x80 {
        out.push((number & 0x7f) as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

fn message(fields: &[(u64, Field)]) -> Vec<u8> {
    let mut out = Vec::new();
    for (number, field) in fields {
        let bytes = |bytes: &[u8], out: &mut Vec<u8>| {
            varint(number << 3 | 2, out);
            varint(bytes.len() as u64, out);
            out.extend_from_slice(bytes);
        };
        match field {
            Field::Varint(value) => {
                varint(number << 3, &mut out);
                varint(*value, &mut out);
            }
            Field::Double(value) => {
                varint(number << 3 | 1, &mut out);
                out.extend_from_slice(&value.to_le_bytes());
            }
            Field::Text(text) => bytes(text.as_bytes(), &mut out),
            Field::Message(message) => bytes(message, &mut out),
        }
    }
    out
}

fn time(seconds: i64, nanoseconds: u64) -> Field<'static> {
    Field::Message(message(&[(1, Field::Varint(seconds.cast_unsigned())), (2, Field::Varint(nanoseconds))]))
}

const NO_TIME: i64 = -62_135_596_800;

/// A dump of the rows above, as `gorse-cli dump` writes it.
fn dump() -> Vec<u8> {
    use Field::{Double, Text, Varint};
    let mut out = Vec::new();
    let long = |number: i64, out: &mut Vec<u8>| out.extend_from_slice(&number.to_le_bytes());
    let section = |mark: i64, messages: &[Vec<u8>], out: &mut Vec<u8>| {
        long(mark, out);
        for message in messages {
            long(message.len() as i64, out);
            out.extend_from_slice(message);
        }
    };
    let users =
        [message(&[(1, Text("u1")), (2, Text("{\"age\":\"18\"}"))]), message(&[(1, Text("u2")), (2, Text("null"))])];
    section(-1, &users, &mut out);
    let labels: Value = serde_json::from_str::<Value>(ITEMS.lines().next().unwrap()).unwrap()["Labels"].clone();
    let items = [
        message(&[
            (2, Text("i1")),
            (4, Text("film")),
            (4, Text("war")),
            (5, time(1_704_067_200, 0)),
            (6, Text(&labels.to_string())),
            (7, Text("a film")),
        ]),
        message(&[(2, Text("i2")), (3, Varint(1)), (5, time(NO_TIME, 0)), (6, Text("[\"x\",\"y\"]"))]),
        message(&[(2, Text("i3")), (5, time(NO_TIME, 0)), (6, Text("null"))]),
    ];
    section(-2, &items, &mut out);
    let feedback = [
        message(&[(2, Text("read")), (3, Text("u1")), (4, Text("i1")), (6, time(1_709_287_200, 0)), (9, Text("null"))]),
        message(&[
            (2, Text("like")),
            (3, Text("u1")),
            (4, Text("i1")),
            (6, time(1_709_283_605, 250_000_000)),
            (7, Text("nice")),
        ]),
        message(&[(2, Text("share")), (3, Text("u2")), (4, Text("i2")), (5, Double(2.5)), (6, time(NO_TIME, 0))]),
    ];
    section(-3, &feedback, &mut out);
    out.extend_from_slice(&0_i64.to_le_bytes());
    out.extend_from_slice(b"{\"Users\":2}");
    out
}

fn inputs(folder: &Folder, name: &str) -> Vec<Input> {
    find(&[folder.path(name)], Finding::default()).unwrap()
}

#[test]
fn exports_are_recognised_by_their_first_lines() {
    let folder = Folder::of(&[
        ("feedback.jsonl", FEEDBACK.as_bytes()),
        ("items.jsonl", ITEMS.as_bytes()),
        ("users.jsonl", USERS.as_bytes()),
        ("feedback.csv", b"feedback_type,user_id,item_id,time_stamp\r\n"),
        ("items.csv", b"item_id,is_hidden,categories,time_stamp,labels,description\r\n"),
        ("users.csv", b"user_id,labels\r\n"),
        ("other.csv", b"user_id,item_id,rating\r\n"),
        ("dump.bin", &dump()),
    ]);
    let layouts = |name: &str| inputs(&folder, name).into_iter().map(|input| input.layout).collect::<Vec<_>>();
    for kind in ["jsonl", "csv"] {
        for (name, subject) in [("feedback", Subject::Feedback), ("items", Subject::Items), ("users", Subject::Users)] {
            assert_eq!(layouts(&format!("{name}.{kind}")), [Layout::Gorse(subject)]);
        }
    }
    assert_eq!(layouts("other.csv"), [Layout::Open]);
    assert_eq!(layouts("dump.bin"), [Subject::Items, Subject::Feedback, Subject::Users].map(Layout::Gorse));
}

#[test]
fn kinds_of_feedback_have_labels_or_are_left_out() {
    let folder = Folder::of(&[("feedback.jsonl", FEEDBACK.as_bytes())]);
    let input = inputs(&folder, "feedback.jsonl").remove(0);
    let problem = checked(&input, &rules(&[])).unwrap_err().to_string();
    assert!(problem.contains("FeedbackType a label, as by --label-of like=1,read=0.2"), "{problem}");

    let rules = with_labels(&["read=0.2", "like=1", "share="]);
    let (found, bad) = checked(&input, &rules).unwrap();
    let found = found.observations.unwrap();
    assert_eq!((found.good, found.left_out, bad.len()), (2, 1, 0));
    let rows = taken(&input, &rules);
    assert_eq!(
        (rows[0].label, rows[0].feedback.as_deref(), rows[0].timestamp),
        (0.2, Some("read"), Some(1_709_287_200_000))
    );
    assert_eq!(
        (rows[1].label, rows[1].feedback.as_deref(), rows[1].timestamp),
        (1.0, Some("like"), Some(1_709_283_605_250))
    );

    let (_, bad) = checked(&input, &with_labels(&["read=0.2", "like=1"])).unwrap();
    assert_eq!(bad.len(), 1);
    assert!(bad[0].to_string().contains("feedback.jsonl:3: column FeedbackType: \"share\" has no label"), "{}", bad[0]);

    let rows = taken(&input, &with_labels(&["*=3", "read="]));
    assert_eq!(rows.iter().map(|row| row.label).collect::<Vec<_>>(), [3.0, 3.0]);
    assert_eq!(rows[1].timestamp, None, "the first year of the calendar is no time");
}

#[test]
fn items_have_categories_labels_and_their_hiding() {
    let csv = "item_id,is_hidden,categories,time_stamp,labels,description\r\ni1,false,film|war,2024-01-01 00:00:00 +0000 UTC,a|b,a film\r\n";
    let folder = Folder::of(&[("items.jsonl", ITEMS.as_bytes()), ("dump.bin", &dump()), ("items.csv", csv.as_bytes())]);
    for name in ["items.jsonl", "dump.bin"] {
        let (found, contradictions) = items(&inputs(&folder, name)[0], &rules(&[]));
        let found: Vec<(&str, Value)> =
            found.iter().map(|row| (row.id.as_str(), Value::from(row.attributes.clone()))).collect();
        assert_eq!((found, contradictions), (expected_items(), 0), "{name}");
    }
    let (found, _) = items(&inputs(&folder, "items.csv")[0], &rules(&[]));
    let expected = json!({"categories": ["film", "war"], "timestamp": 1_704_067_200_000_i64, "labels": ["a", "b"], "comment": "a film"});
    assert_eq!(Value::from(found[0].attributes.clone()), expected);
}

#[test]
fn a_dump_has_the_observations_of_an_export_with_their_ids() {
    let folder = Folder::of(&[("feedback.jsonl", FEEDBACK.as_bytes()), ("dump.bin", &dump())]);
    let rules = with_labels(&["*=1"]);
    let of_export = taken(&inputs(&folder, "feedback.jsonl")[0], &rules);
    let of_dump = inputs(&folder, "dump.bin");
    assert_eq!(taken(&of_dump[1], &rules), of_export);
    let (users, _) = checked(&of_dump[2], &rules).unwrap();
    assert_eq!((users.content, users.users.unwrap().good), (Content::Users, 2));

    // Gorse notes when it took the feedback again, and comments change: the feedback is the same.
    let later = FEEDBACK.replace("\"Updated\":\"2024-03-02", "\"Updated\":\"2025-01-01").replace("nice", "very nice");
    folder.write("later.jsonl", later.as_bytes());
    assert_eq!(taken(&inputs(&folder, "later.jsonl")[0], &rules), of_export);
}

#[test]
fn a_damaged_dump_is_named_with_the_place() {
    let whole = dump();
    let feedback_end = whole.len() - 8 - 11;
    for (bytes, problem) in [
        (whole[..feedback_end].to_vec(), "ends before its end"),
        (whole[..feedback_end - 3].to_vec(), "ends within a row"),
        ([&whole[..feedback_end], &i64::MAX.to_le_bytes()].concat(), "longer than"),
        ([&whole[..feedback_end], &(-9_i64).to_le_bytes()].concat(), "-9 is neither a length nor a section"),
    ] {
        let folder = Folder::of(&[("dump.bin", bytes.as_slice())]);
        let error = checked(&inputs(&folder, "dump.bin")[1], &with_labels(&["*=1"])).unwrap_err().to_string();
        assert!(error.contains(problem) && error.contains("dump.bin: after row"), "{error}");
    }
    let mut crooked = whole;
    let place = crooked.windows(4).position(|bytes| bytes == b"like").unwrap();
    crooked[place] = 0xff;
    let folder = Folder::of(&[("dump.bin", crooked.as_slice())]);
    let (_, bad) = checked(&inputs(&folder, "dump.bin")[1], &with_labels(&["*=1"])).unwrap();
    assert!(bad[0].to_string().contains("dump.bin: row 2: the row is damaged"), "{}", bad[0]);
}
