//! The mistakes that people make with their files, each with a message that names cause and remedy.

use crate::{Folder, checked, rules, taken_of};
use celeris_import::{Finding, Reading, Rules, TimeUnit, find};
use celeris_model::{LabelRange, Loss};

/// What goes wrong with a file: the error of the file, or of its first bad row.
fn message(bytes: &[u8], rules: &Rules) -> String {
    let folder = Folder::of(&[("shop.csv", bytes)]);
    let problem = match folder.input("shop.csv").and_then(|input| checked(&input, rules)) {
        Err(error) => error.to_string(),
        Ok((found, _)) => found.first_bad.map_or_else(|| "nothing is wrong".to_owned(), |bad| bad.to_string()),
    };
    problem.replace(&format!("{}/", folder.0.path().display()), "")
}

#[track_caller]
fn assert_message(text: &str, rules: &Rules, words: &[&str]) {
    let message = message(text.as_bytes(), rules);
    for word in words {
        assert!(message.contains(word), "for {text:?}: no {word:?} in\n{message}");
    }
}

#[test]
fn unknown_columns_are_named_with_the_option_that_names_them() {
    let cases: [(&str, &[&str]); 6] = [
        (
            "wer,was,stars\n1,2,3\n",
            &["shop.csv: no columns for user and item among wer, was, stars", "--map user=COLUMN,item=COLUMN"],
        ),
        (
            "wer,product_id,stars\n1,2,3\n",
            &["no column for the user among wer, product_id, stars", "--map user=COLUMN", "--attributes"],
        ),
        ("customer_id,age\n1,2\n", &["no column for the item", "--map item=COLUMN", "--user-attributes"]),
        (
            "user,item,price\n1,2,3\n",
            &["no column for the label among user, item, price", "--label-from COLUMN", "--label 1", "implicit"],
        ),
        (
            "1,10,4.0,964982703\n2,10,3.5,964982703\n",
            &["\"1,10,4.0,964982703\"", "looks like data", "--columns user,item,label,time"],
        ),
        ("user item label\n1 2 3\n", &["\"user item label\"", "one column only", "--delimiter"]),
    ];
    for (text, words) in cases {
        assert_message(text, &rules(&[]), words);
    }
    let mapped = rules(&["user=custmer_id"]);
    assert_message(
        "customer_id,item,label\n1,2,3\n",
        &mapped,
        &["no column \"custmer_id\"", "customer_id, item, label"],
    );
    let twice = Rules { label: Some(1.0), ..rules(&["label=stars"]) };
    assert_message("user,item,stars\n1,2,3\n", &twice, &["the label is given twice"]);
}

#[test]
fn bad_values_are_named_with_line_column_value_and_remedy() {
    let header = "customer_id,product_id,stars,created_at";
    let cases: [(&str, &[&str]); 14] = [
        ("1,2,abc,2024-01-31", &["shop.csv:3: column stars: \"abc\" is not a number"]),
        ("1,2,NaN,2024-01-31", &["shop.csv:3: column stars: \"NaN\" is not a number"]),
        ("1,2,,2024-01-31", &["shop.csv:3: column stars: is empty"]),
        ("1,2,\"3,5\",2024-01-31", &["\"3,5\" has a decimal comma", "\";\"", "write 3.5"]),
        ("1,2,2e6,2024-01-31", &["column stars: 2000000 is not between -1e6 and 1e6"]),
        (",2,3,2024-01-31", &["shop.csv:3: column customer_id: is empty", "id"]),
        ("1,,3,2024-01-31", &["shop.csv:3: column product_id: is empty"]),
        ("1,a\u{1}b,3,2024-01-31", &["column product_id: \"a\\u{1}b\" is not an id", "control characters"]),
        ("1,2,3,31.12.2023", &["column created_at: \"31.12.2023\" is not a time", "2024-01-31 18:30:00"]),
        ("1,2,3,1/31/2024", &["column created_at: \"1/31/2024\" is not a time", "ISO"]),
        ("1,2,3,0", &["column created_at: \"0\" is no time between 1973", "leave it empty", "--time-unit"]),
        ("1,2,3,9999-12-31", &["column created_at: \"9999-12-31\" is 9999-12-30T22:00:00Z, in the future"]),
        ("1,2,3", &["shop.csv:3: the row has 3 fields where the header has 4"]),
        ("1,2,3,2024-01-31,x", &["shop.csv:3: the row has 5 fields where the header has 4"]),
    ];
    let rules = Rules { latest: 4_000_000_000_000, ..rules(&[]) };
    for (row, words) in cases {
        assert_message(&format!("{header}\n1,2,3,2024-01-30\n{row}\n"), &rules, words);
    }
    assert_message(
        &format!("{header}\n1,\"2,3,2024-01-30\n1,2,3,2024-01-30\n"),
        &rules,
        &["shop.csv:2:", "it spans the lines 2 to 3", "closing quote"],
    );
    let json = "{\"user\": 1, \"item\": 2, \"label\": 3}\n";
    assert_message(&format!("{json}{{\"user\": 1,\n"), &rules, &["shop.csv:2: not a JSON object", "every line"]);
    assert_message(
        &format!("{json}{{\"user\": {{}}, \"item\": 2, \"label\": 3}}\n"),
        &rules,
        &["column user: a JSON object is not an id"],
    );
    let latin = b"user,item,label\nJos\xe9,1,2\n";
    assert!(
        message(latin, &rules).contains("shop.csv:2: column user: text that is not UTF-8"),
        "{}",
        message(latin, &rules)
    );
    assert!(message(latin, &rules).contains("iconv"));
}

#[test]
fn times_in_two_units_are_refused() {
    let mixed = "user,item,label,ts\n1,2,3,1700000000\n1,2,3,1700000000\n1,2,3,1700000000000\n";
    let words = [
        "column ts mixes seconds (line 2: \"1700000000\") and milliseconds (line 4: \"1700000000000\")",
        "--time-unit",
    ];
    assert_message(mixed, &rules(&[]), &words);
    assert_message(
        "user,item,label,ts\n1,2,3,2024-01-31\n1,2,3,1700000000\n",
        &rules(&[]),
        &["mixes ISO times", "seconds"],
    );
    let seconds = Rules { time_unit: Some(TimeUnit::Seconds), latest: 4_000_000_000_000, ..rules(&[]) };
    assert_message(mixed, &seconds, &["shop.csv:4: column ts", "in seconds is", "in the future", "--time-unit"]);
}

#[test]
fn labels_that_the_loss_does_not_take_are_found_before_anything_is_sent() {
    let text = "user,item,rating\n1,2,1\n1,3,4\n";
    let logistic = Rules { loss: Some(Loss::Logistic), ..rules(&[]) };
    assert_message(
        text,
        &logistic,
        &["shop.csv:3: column rating: 4 is not from 0 to 1", "logistic", "squared", "--label-from"],
    );
    let (without, implicit) = ("user,item\n1,2\n", Rules { loss: Some(Loss::Implicit), ..rules(&[]) });
    assert_message(without, &logistic, &["no column for the label", "clicks of 0 and 1"]);
    assert!(!message(without.as_bytes(), &logistic).contains("--label 1"), "one label for all rows teaches nothing");
    assert_message(without, &implicit, &["no column for the label", "--label 1"]);
    assert_message(
        "user,item,qty\n1,2,-1\n",
        &implicit,
        &["shop.csv:2: column qty: -1 is below 0", "implicit", "squared"],
    );
    assert_message(text, &Rules { loss: Some(Loss::Squared), ..rules(&[]) }, &["nothing is wrong"]);
    let in_range = Rules { label_range: Some(LabelRange::new(1.0, 3.5).unwrap()), ..rules(&[]) };
    assert_message(
        text,
        &in_range,
        &["shop.csv:3: column rating: 4 is not from 1 to 3.5, the model's label_range", "\"labels_outside\": \"clip\""],
    );
}

#[test]
fn old_times_are_refused_unless_the_caller_takes_them() {
    let text = "user,item,label,ts\n1,2,3,2000-01-01\n1,2,3,1999-12-31\n";
    let from_2000 = Rules { earliest: Some(946_684_800_000), ..rules(&[]) };
    let words = ["shop.csv:3: column ts", "before 2000-01-01T00:00:00Z", "--old-times", "limits.earliest_time"];
    assert_message(text, &from_2000, &words);
    assert_message(text, &rules(&[]), &["nothing is wrong"]);
}

#[test]
fn a_time_beyond_the_calendar_is_named_in_words() {
    let text = "user,item,label,ts\n1,2,3,253402214400000\n";
    let words = ["\"253402214400000\" in milliseconds is a time after the year 9999, in the future"];
    let milliseconds = Rules { time_unit: Some(TimeUnit::Milliseconds), latest: 4_000_000_000_000, ..rules(&[]) };
    assert_message(text, &milliseconds, &words);
}

#[test]
fn many_columns_are_counted_and_control_characters_escaped() {
    let header: Vec<String> = (0..100_000).map(|column| format!("c{column}")).collect();
    let problem = message(format!("{}\n", header.join(",")).as_bytes(), &rules(&[]));
    assert!(problem.contains("c0, c1,") && problem.contains("c11 and 99988 more"), "{problem}");
    assert!(problem.len() < 1000, "{} bytes", problem.len());
    assert_message("a\u{1b}[2J,b\n1,2\n", &rules(&[]), &["among \"a\\u{1b}[2J\", b;"]);
    assert_message("user,item,rating\u{7}\n1,2,x\n", &rules(&[]), &["column \"rating\\u{7}\": \"x\""]);
}

#[test]
fn a_field_that_begins_late_in_json_lines_is_named_with_its_line() {
    let line = |fields: &str| format!("{{\"user\": 1, \"item\": 2, \"label\": 3{fields}}}\n");
    let late = format!("{}{}", line("").repeat(1000), line(", \"other\": 1, \"timestamp\": \"2020-01-01\""));
    assert_message(&late, &rules(&[]), &["shop.csv:1001: the field timestamp", "--columns timestamp", "--map time="]);
    assert_message(&late, &rules(&["time=timestamp"]), &["no column \"timestamp\"", "--columns names others"]);
    assert_message(&late, &rules(&["time="]), &["nothing is wrong"]);
    let columns = Some(vec!["timestamp".to_owned()]);
    let named = Rules { reading: Reading { columns, ..Reading::default() }, ..rules(&[]) };
    let times = taken_of(late.as_bytes(), &named).iter().filter(|taken| taken.timestamp.is_some()).count();
    assert_eq!(times, 1);
}

#[test]
fn attributes_of_users_are_those_of_a_file_of_users() {
    let attributes = |name: &str| Rules { attributes: vec![name.to_owned()], ..rules(&[]) };
    let text = "user_id,item,label,user_age,title\n1,2,3,40,Heat\n";
    assert_message(text, &attributes("user_age"), &["user_age", "--user-attributes", "in a file of users"]);
    let of_users = Rules { user_attributes: vec!["user_age".to_owned()], ..rules(&[]) };
    assert_message(text, &of_users, &["shop.csv: --user-attributes user_age", "a file of their own"]);
    assert_message("user_id,user_age\nu1,40\n", &of_users, &["nothing is wrong"]);
    assert_message(
        "user_id,age\nu1,40\n",
        &of_users,
        &["--user-attributes: there is no column \"user_age\"", "user_id, age"],
    );
    assert_message("item,title\n1,Heat\n", &attributes("titel"), &["no column \"titel\"", "item, title"]);
    assert_message(text, &attributes("title"), &["nothing is wrong"]);
}

#[test]
fn other_files_are_named_with_the_way_to_read_them() {
    let cases: [(&[u8], &[&str]); 8] = [
        (b"", &["holds no rows"]),
        (b"\n\r\n", &["holds no rows"]),
        (b"user,item,label\n", &["holds no rows"]),
        (b"[{\"user\": 1}]", &["JSON array", "jq -c '.[]'"]),
        (b"\xff\xfeu\x00s\x00", &["UTF-16", "UTF-8", "iconv"]),
        (b"PK\x03\x04rest", &["Excel", "CSV"]),
        (b"\x28\xb5\x2f\xfdrest", &["zstd", "zstdcat"]),
        (b"\x00\x01\x02,", &["not text", "Parquet"]),
    ];
    for (bytes, words) in cases {
        let message = message(bytes, &rules(&[]));
        for word in words {
            assert!(message.contains(word), "for {bytes:?}: no {word:?} in {message}");
        }
    }
    // A gzip header, and the beginning of a block that is missing.
    let cut_off = b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\x03\x01\x10\x00\xef\xffuser,item";
    assert!(message(cut_off, &rules(&[])).starts_with("shop.csv: "));
    let folder = Folder::of(&[("notes/notes.txt", b"x")]);
    let problem = find(&[folder.path("notes")], Finding::default()).unwrap_err().to_string();
    assert!(problem.contains("ratings.csv") && problem.contains("name the files"), "{problem}");
    let missing = find(&[folder.path("no-such-file.csv")], Finding::default()).unwrap_err().to_string();
    assert!(missing.contains("no-such-file.csv: "), "{missing}");
}

#[test]
fn contexts_that_the_node_would_refuse_are_found_in_the_first_reading() {
    let context = |names: &[&str]| Rules {
        context: names.iter().map(|name| (*name).to_owned()).collect(),
        ..rules(&["context=about"])
    };
    let text = "user,item,label,about,device\n1,2,3,,phone\n";
    assert_message(text, &context(&["device"]), &["nothing is wrong"]);
    assert_message(text, &context(&["devise"]), &["--context", "no column \"devise\"", "about, device"]);
    assert_message(text, &context(&["device", "device"]), &["--context", "column device twice"]);
    for (about, words) in
        [("phone", ["about", "\"phone\" is not a JSON object"]), ("[1]", ["about", "not a JSON object"])]
    {
        assert_message(&format!("user,item,label,about\n1,2,3,{about}\n"), &context(&[]), &words);
    }
    let nested = "user,item,label,about\n1,2,3,\"{\"\"a\"\": {}}\"\n";
    assert_message(
        nested,
        &context(&[]),
        &["the context", "expected a number, a string, a boolean or a list of strings"],
    );
    let long = format!("user,item,label,device\n1,2,3,{}\n", "x".repeat(1100));
    assert_message(&long, &Rules { context: vec!["device".to_owned()], ..rules(&[]) }, &["the context", "1024 bytes"]);
}
