//! Errors of damaged files name the location and the expected value.

use std::fs;

use celeris_datasets::{Dataset, DatasetError};

const HEADER: &[u8] = b"userId,movieId,rating,timestamp\n";

fn message(files: &[(&str, &[u8])]) -> String {
    let folder = tempfile::tempdir().unwrap();
    for (name, bytes) in files {
        fs::write(folder.path().join(name), bytes).unwrap();
    }
    Dataset::load(folder.path()).unwrap_err().to_string()
}

fn assert_ends(message: &str, expected: &str, input: &[u8]) {
    assert!(message.ends_with(expected), "for {:?}\n got {message}\nwant …{expected}", String::from_utf8_lossy(input));
}

#[test]
fn bad_csv_rows_name_file_line_and_field() {
    let long_id = format!("1,{},3,0", "x".repeat(257));
    let cases: [(&[u8], &str); 16] = [
        (b"1,2,abc,0", "ratings.csv:3: field rating: expected a finite number, got \"abc\""),
        (b"1,2,NaN,0", "ratings.csv:3: field rating: expected a finite number, got \"NaN\""),
        (b"1,2,inf,0", "field rating: expected a finite number, got \"inf\""),
        (b"1,2,1e39,0", "field rating: expected a finite number, got \"1e39\""),
        (b"1,2,2e6,0", "field rating: expected a number between -1e6 and 1e6, got \"2e6\""),
        (b"1,2,,0", "field rating: expected a finite number, got \"\""),
        (b"1,2, 3,0", "field rating: expected a finite number, got \" 3\""),
        (b"1,2", "ratings.csv:3: field rating: expected a value, got the end of the row"),
        (b"1,2,3", "ratings.csv:3: field timestamp: expected a value, got the end of the row"),
        (b"1,2,3,-5", "field timestamp: expected whole seconds since 1970, up to the year 9999, got \"-5\""),
        (b"1,2,3,99999999999999", "seconds since 1970, up to the year 9999, got \"99999999999999\""),
        (b"1,2,3,0,9", "ratings.csv:3: field 5: expected the end of the row, got \"9\""),
        (b",2,3,0", "field userId: expected an id of 1 to 256 bytes without control characters, got \"\""),
        (b"1,\xff\xfe,3,0", "ratings.csv:3: field movieId: expected UTF-8 text, got other bytes"),
        (
            b"1,a\x01b,3,0",
            "field movieId: expected an id of 1 to 256 bytes without control characters, got \"a\\u{1}b\"",
        ),
        (long_id.as_bytes(), "xxxxxxxxxx\"…"),
    ];
    for (row, expected) in cases {
        for line_break in ["\n", "\r\n"] {
            let text =
                [b"userId,movieId,rating,timestamp", line_break.as_bytes(), b"1,2,3,0", line_break.as_bytes(), row];
            let text = [text.concat(), line_break.as_bytes().to_vec()].concat();
            assert_ends(&message(&[("ratings.csv", &text)]), expected, row);
        }
    }
}

#[test]
fn bad_separated_rows_name_file_line_and_field() {
    let cases: [(&str, &[u8], &str); 9] = [
        ("u.data", b"1\t2\t3\t0\n\n1\t2\tbad\t0\n", "u.data:3: field rating: expected a finite number, got \"bad\""),
        ("u.data", b"1\t2\t3\n", "u.data:1: field timestamp: expected a value, got the end of the row"),
        ("u.data", b"1\t2\t3\t0\n1::2::3::0\n", "u.data:2: field item: expected a value, got the end of the row"),
        ("u.data", b"1\t2\t3\t0\n1 2 3 0\n", "u.data:2: field item: expected a value, got the end of the row"),
        ("u.data", b"1\t2\t3\t0\t\n", "u.data:1: field 5: expected the end of the row, got \"\""),
        ("u.data", b"\xc3\t\xa9\t3\t0\n", "u.data:1: field user: expected UTF-8 text, got other bytes"),
        ("ratings.dat", b"1::2::3::x\n", "whole seconds since 1970, up to the year 9999, got \"x\""),
        (
            "ratings.dat",
            b"1::::3::0\n",
            "ratings.dat:1: field item: expected an id of 1 to 256 bytes without control characters, got \"\"",
        ),
        (
            "ratings.dat",
            b"1::2::3::0\n1:2:3:0\n",
            "ratings.dat:2: field item: expected a value, got the end of the row",
        ),
    ];
    for (name, bytes, expected) in cases {
        assert_ends(&message(&[(name, bytes)]), expected, bytes);
    }
}

#[test]
fn bad_titles_name_file_line_and_field() {
    let flags = b"1|Heat (1995)|01-Jan-1995|||0|1|0|0|0|0|0|0|0|0|0|2|0|0|0|0|0|0|1\n";
    let cases: [(&str, &[u8], &str); 8] = [
        (
            "movies.csv",
            b"movieId,title,genres\n1,\"\",Drama\n",
            "movies.csv:2: field title: expected a title, got \"\"",
        ),
        (
            "movies.csv",
            b"movieId,title\n1,A\n1,B\n",
            "movies.csv:3: field movieId: expected an id that no earlier row has, got \"1\"",
        ),
        (
            "movies.csv",
            b"movieId,title\n1,\"A\n\n",
            "movies.csv:2: field 2: expected a closing quote, got the end of the file",
        ),
        ("movies.csv", b"movieId,title\n1,\xe9\n", "movies.csv:2: field title: expected UTF-8 text, got other bytes"),
        ("movies.csv", b"id,name\n1,A\n", "known are CSV whose header names movieId, title and possibly genres"),
        ("movies.dat", b"1::A::Drama\n2::B\n", "movies.dat:2: field genres: expected a value, got the end of the row"),
        ("u.item", flags, "u.item:1: field Horror: expected 0 or 1, got \"2\""),
        ("u.item", b"1|Heat (1995)|||\n", "u.item:1: field unknown: expected a value, got the end of the row"),
    ];
    for (name, bytes, expected) in cases {
        assert_ends(&message(&[("u.data", b"1\t2\t3\t0\n"), (name, bytes)]), expected, bytes);
    }
    let genres = message(&[("u.data", b"1\t2\t3\t0\n"), ("u.item", flags), ("u.genre", b"unknown|0\nDrama|2\n")]);
    assert_ends(&genres, "u.genre:2: field number: expected the genres numbered from 0 in order, got \"2\"", b"");
}

#[test]
fn errors_of_unknown_formats_list_the_known_ones() {
    for text in ["a b c d\n", "{\"user\": 1}\n", "user,stars\n1,2\n", "1,2,3.5,0\n", "\u{0}\u{1}\u{2}\n"] {
        let message = message(&[("ratings.csv", text.as_bytes())]);
        for part in ["not a known ratings format", "ratings.csv", "user::item::rating::seconds", "<tab>", "userId"] {
            assert!(message.contains(part), "{message} lacks {part}");
        }
    }
    let endless = vec![b'x'; 100_000];
    assert!(message(&[("u.data", &endless)]).contains("not a known ratings format"));
}

#[test]
fn rows_without_end_are_refused_in_bounded_memory() {
    let endless_line = [HEADER, &vec![b'1'; 100_000]].concat();
    assert!(message(&[("ratings.csv", &endless_line)]).contains("ratings.csv:2: row is longer than 16384 bytes"));
    let open_quote = [HEADER, b"\"1,2,3,0\n".as_slice(), &b"1,2,3,0\n".repeat(10_000)].concat();
    assert!(message(&[("ratings.csv", &open_quote)]).contains("ratings.csv:2: row is longer than 16384 bytes"));
    let columns =
        |count: usize| format!("userId,movieId,rating{}\n1,2,3{}\n", ",x".repeat(count - 3), ",".repeat(count - 3));
    assert!(
        message(&[("ratings.csv", columns(129).as_bytes())]).contains("ratings.csv:1: field 129: expected at most 128")
    );
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("ratings.csv"), columns(128)).unwrap();
    assert_eq!(Dataset::load(folder.path()).unwrap().ratings.len(), 1);
}

#[test]
fn files_without_ratings_are_errors() {
    for (name, bytes) in [("u.data", b"".as_slice()), ("u.data", b"\n\r\n"), ("ratings.csv", HEADER)] {
        assert!(message(&[(name, bytes)]).ends_with("holds no ratings"));
    }
    assert!(message(&[("notes.txt", b"")]).contains("expected one of ratings.csv, ratings.dat, u.data"));
    let missing = Dataset::load("no/such/path").unwrap_err();
    assert!(matches!(missing, DatasetError::Io { .. }) && missing.to_string().starts_with("no/such/path: "));
}

#[test]
fn truncated_gzip_is_an_error() {
    // A complete gzip header and the beginning of a stored block that is missing.
    let bytes = b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\x03\x01\x10\x00\xef\xff1\t2\t3\t0\n";
    assert!(message(&[("u.data.gz", bytes)]).contains("u.data.gz: "));
}
