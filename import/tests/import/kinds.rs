//! One table, written in every way that is read, gives one set of observations.

use std::io::Write;

use flate2::Compression;
use flate2::write::GzEncoder;

use crate::{Folder, checked, items, rules, taken, taken_of};
use celeris_import::source::Delimiter;
use celeris_import::{Finding, Rules, Taken, TimeUnit, find};

/// User, item, label and time of observations.
fn values(taken: &[Taken]) -> Vec<(&str, &str, f32, Option<i64>)> {
    taken.iter().map(|row| (row.user.as_str(), row.item.as_str(), row.label, row.timestamp)).collect()
}

const EXPECTED: [(&str, &str, f32, Option<i64>); 2] =
    [("u1", "Ä 2", 3.5, Some(1_700_000_000_000)), ("7", "b", 4.0, Some(1_700_000_060_000))];

#[track_caller]
fn assert_expected(bytes: &[u8], rules: &Rules) {
    let taken = taken_of(bytes, rules);
    assert_eq!(values(&taken), EXPECTED, "{}", String::from_utf8_lossy(bytes));
}

#[test]
fn delimited_text_of_every_kind_is_read() {
    let usual = rules(&[]);
    assert_expected("user,item,rating,timestamp\nu1,Ä 2,3.5,1700000000\n7,b,4,1700000060\n".as_bytes(), &usual);
    assert_expected("\u{feff}User;Item;Stars;Date\r\nu1;Ä 2;3,5;1700000000\r\n7;b;4;1700000060\r\n".as_bytes(), &usual);
    assert_expected("user\titem\trating\ttime\nu1\tÄ 2\t3.5\t1700000000\n\n7\tb\t4\t1700000060".as_bytes(), &usual);
    assert_expected("user|item|rating|time\nu1|Ä 2|3.5|1700000000\n7|b|4|1700000060\n".as_bytes(), &usual);
    assert_expected(
        "\"user\",\"item\",\"x\ny\",rating,time\nu1,\"Ä 2\",\"a, \"\"b\"\"\nc\",3.5,1700000000\n7,b,,4,1700000060\n"
            .as_bytes(),
        &usual,
    );
    let named = Rules { reading: headless(&["item", "user", "time", "label"], None), ..rules(&[]) };
    assert_expected("Ä 2,u1,1700000000,3.5\nb,7,1700000060,4\n".as_bytes(), &named);
    let by_byte = Rules {
        reading: headless(&["user", "item", "label", "time"], Some(Delimiter::parse("~").unwrap())),
        ..rules(&[])
    };
    assert_expected("u1~Ä 2~3.5~1700000000\n7~b~4~1700000060\n".as_bytes(), &by_byte);
    assert_expected("u1::Ä 2::3.5::1700000000\n7::b::4::1700000060\n".as_bytes(), &usual);
    assert_expected("u1\tÄ 2\t3.5\t1700000000\n7\tb\t4\t1700000060\n".as_bytes(), &usual);
}

fn headless(columns: &[&str], delimiter: Option<Delimiter>) -> celeris_import::Reading {
    let columns = Some(columns.iter().map(|name| (*name).to_owned()).collect());
    celeris_import::Reading { columns, delimiter }
}

#[test]
fn json_lines_are_read() {
    let lines = "{\"customer_id\": \"u1\", \"product_id\": \"Ä 2\", \"stars\": 3.5, \"created_at\": \"2023-11-14T22:13:20Z\"}\n\
                 \n{\"created_at\": \"2023-11-14 22:14:20\", \"customer_id\": 7, \"product_id\": \"b\", \"stars\": \"4\", \"x\": {}}\n";
    assert_expected(lines.as_bytes(), &rules(&[]));
}

#[test]
fn gzip_is_recognised_and_has_the_ids_of_the_plain_file() {
    let text = "user,item,rating,timestamp\nu1,Ä 2,3.5,1700000000\n7,b,4,1700000060\n";
    let mut gzip = GzEncoder::new(Vec::new(), Compression::default());
    gzip.write_all(text.as_bytes()).unwrap();
    let folder = Folder::of(&[("r.csv", text.as_bytes()), ("z/r.csv.gz", &gzip.finish().unwrap())]);
    let plain = taken(&folder.input("r.csv").unwrap(), &rules(&[]));
    assert_eq!(values(&plain), EXPECTED);
    assert_eq!(taken(&folder.input("z/r.csv.gz").unwrap(), &rules(&[])), plain);
}

#[test]
fn a_file_and_its_compressed_form_are_not_taken_together() {
    let text = b"user,item,label\nu,i,1\n".as_slice();
    let folder = Folder::of(&[("same.csv", text), ("same.csv.gz", text)]);
    let both =
        find(&[folder.path("same.csv"), folder.path("same.csv.gz")], Finding::default()).unwrap_err().to_string();
    assert!(both.contains("have one name") && both.contains("--id-prefix"), "{both}");
}

#[test]
fn a_negative_zero_is_a_zero() {
    let label = taken_of(b"user,item,label\nu,i,-0.0\n", &rules(&[]))[0].label;
    assert_eq!(label.to_string(), "0");
}

#[test]
fn times_are_read_in_every_usual_form() {
    let time = |text: &str, unit: Option<TimeUnit>| {
        let rules = Rules { time_unit: unit, ..rules(&[]) };
        taken_of(format!("user,item,label,time\nu,i,1,{text}\n").as_bytes(), &rules)[0].timestamp
    };
    for text in [
        "1700000000",
        "1700000000.0",
        "1700000000000",
        "1700000000000000",
        "1700000000000000000",
        "2023-11-14T22:13:20Z",
        "2023-11-14T22:13:20.000Z",
        "2023-11-14T23:13:20+01:00",
        "2023-11-14 22:13:20+00:00",
        "2023-11-14 22:13:20",
        "2023-11-14 22:13:20 UTC",
        "\" 2023-11-14 22:13:20 \"",
    ] {
        assert_eq!(time(text, None), Some(1_700_000_000_000), "{text}");
    }
    assert_eq!(time("2024-01-31", None), Some(1_706_659_200_000));
    assert_eq!(time("20240131", None), Some(1_706_659_200_000), "a date, not a second of 1970");
    assert_eq!(time("20240131", Some(TimeUnit::Seconds)), Some(20_240_131_000));
    assert_eq!(time("1700000000", Some(TimeUnit::Milliseconds)), Some(1_700_000_000));
    assert_eq!(time("", None), None, "the time of arrival, not 1970");
}

#[test]
fn attributes_have_one_type_in_a_column() {
    let text = "product_id;title;price;genres;available;note\n1;1984;9,50;Drama|War;true;\n2;Heat;12;Drama;false;\n2;Heat;13;Drama;false;\n";
    let folder = Folder::of(&[("items.csv", text.as_bytes())]);
    let attributes = ["title", "price", "genres", "available", "note"].map(str::to_owned).to_vec();
    let (rows, contradictions) = items(&folder.input("items.csv").unwrap(), &Rules { attributes, ..rules(&[]) });
    let shown: Vec<String> =
        rows.iter().map(|row| format!("{} {}", row.id, serde_json::Value::from(row.attributes.clone()))).collect();
    assert_eq!(
        shown,
        [
            r#"1 {"available":true,"genres":["Drama","War"],"price":9.5,"title":"1984"}"#,
            r#"2 {"available":false,"genres":["Drama"],"price":12,"title":"Heat"}"#,
        ]
    );
    assert_eq!(contradictions, 1, "the first description counts");
}

#[test]
fn rows_of_feedback_may_describe_their_items() {
    let text = "user,item,rating,title\na,1,4,Heat\nb,1,5,Heat\nc,2,3,1984\n";
    let folder = Folder::of(&[("r.csv", text.as_bytes())]);
    let input = folder.input("r.csv").unwrap();
    let rules = Rules { attributes: vec!["title".to_owned()], ..rules(&[]) };
    let (rows, contradictions) = items(&input, &rules);
    assert_eq!((rows.len(), contradictions), (2, 0));
    assert_eq!(taken(&input, &rules).len(), 3);
}

/// The contexts of these rows, as JSON.
fn contexts(taken: &[Taken]) -> Vec<String> {
    taken.iter().map(|taken| serde_json::to_string(&taken.context).unwrap()).collect()
}

#[test]
fn columns_become_fields_of_the_context_with_one_type_each() {
    let text = "user,item,rating,device,hour,tags,size\na,1,4,phone,21,home|sale,9\nb,1,5,,7.5,home,large\nc,2,3,,,,\n";
    let context = ["device", "hour", "tags", "size"].map(str::to_owned).to_vec();
    let rules = Rules { context, ..rules(&[]) };
    assert_eq!(
        contexts(&taken_of(text.as_bytes(), &rules)),
        [
            r#"{"device":"phone","hour":21,"size":"9","tags":["home","sale"]}"#,
            r#"{"hour":7.5,"size":"large","tags":["home"]}"#,
            "null",
        ]
    );
    let folder = Folder::of(&[("r.csv", text.as_bytes())]);
    let (checked, _) = checked(&folder.input("r.csv").unwrap(), &rules).unwrap();
    let observations = checked.observations.unwrap();
    let kinds: Vec<&str> = observations.context_kinds.iter().map(|kind| kind.words()).collect();
    assert_eq!(kinds, ["text", "number", "list", "text"]);
    let first: Vec<Taken> = observations.first.into_iter().map(|(_, taken)| taken).collect();
    assert!(contexts(&first)[0].contains(r#""size":"9""#), "as the second reading takes it");
}

#[test]
fn contexts_of_exports_and_of_json_lines_are_taken_as_they_are() {
    let rows = [
        r#"{"user": "a", "item": 1, "rating": 4, "observation_id": "x", "context": {"hour": 3, "new": true}}"#,
        r#"{"user": "a", "item": 2, "rating": 4, "observation_id": "y", "context": "{\"hour\": 4}"}"#,
        r#"{"user": "a", "item": 3, "rating": 4, "observation_id": "z", "context": null}"#,
    ];
    let taken = taken_of(rows.join("\n").as_bytes(), &rules(&[]));
    assert_eq!(contexts(&taken), [r#"{"hour":3,"new":true}"#, r#"{"hour":4}"#, "null"]);
}
