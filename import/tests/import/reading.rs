//! Line numbers, raw rows, ids and memory.

use crate::{Folder, checked, rules, taken, taken_of};
use celeris_import::error::Fault;
use celeris_import::{Finding, Observations, Rules, find};
use celeris_model::Loss;

#[test]
fn bad_rows_have_their_line_and_their_text() {
    for line_break in ["\n", "\r\n"] {
        let rows = [
            "user,item,label,note",
            "a,1,x,",
            "",
            "b,2,3,\"two",
            "lines\"",
            "c,3,,\"quoted, \"\"x\"\"\"",
            "d,4",
            "e,5,1,ok",
        ];
        let text = rows.join(line_break);
        let folder = Folder::of(&[("r.csv", text.as_bytes())]);
        let (found, bad) = checked(&folder.input("r.csv").unwrap(), &rules(&[])).unwrap();
        assert_eq!((found.observations.unwrap().good, found.bad), (2, 3));
        let places: Vec<(u64, String)> =
            bad.iter().map(|row| (row.place.number, String::from_utf8(row.raw.clone()).unwrap())).collect();
        let expected = [(2, "a,1,x,"), (6, "c,3,,\"quoted, \"\"x\"\"\""), (7, "d,4")];
        assert_eq!(places, expected.map(|(line, raw)| (line, raw.to_owned())), "{line_break:?}");
    }
}

#[test]
fn long_files_are_read_with_the_numbers_of_their_lines() {
    // Beyond the reader's buffers, with rows across their ends.
    let mut text = "user,item,label\n".to_owned();
    for row in 0..50_000 {
        text.push_str(&format!("user-{row},item-{},{}\n", row % 700, row % 5));
    }
    text.push_str("bad,row\n");
    let folder = Folder::of(&[("r.csv", text.as_bytes())]);
    let (found, bad) = checked(&folder.input("r.csv").unwrap(), &rules(&[])).unwrap();
    assert_eq!(found.observations.unwrap().good, 50_000);
    assert_eq!((bad[0].place.number, bad[0].raw.as_slice()), (50_002, b"bad,row".as_slice()));
}

#[test]
fn february_follows_january_and_equal_rows_of_two_files_both_count() {
    let folder = Folder::of(&[
        ("jan.csv", b"user,item,label\na,1,5\nb,2,3\na,1,5\n"),
        ("feb.csv", b"user,item,label\na,1,5\nc,2,3\n"),
        ("new/jan.csv", b"user,item,label\nc,9,1\na,1,5\na,1,5\nb,2,3\n"),
    ]);
    let ids = |name: &str, prefix: Option<&str>| {
        let input = find(&[folder.path(name)], Finding { id_prefix: prefix, ..Finding::default() }).unwrap().remove(0);
        let mut ids: Vec<String> = taken(&input, &rules(&[])).into_iter().map(|row| row.observation_id).collect();
        ids.sort();
        ids.dedup();
        ids
    };
    let (january, february) = (ids("jan.csv", None), ids("feb.csv", None));
    assert_eq!((january.len(), february.len()), (3, 2), "equal rows have ids of their own");
    assert!(february.iter().all(|id| !january.contains(id)));
    let longer = ids("new/jan.csv", None);
    assert!(january.iter().all(|id| longer.contains(id)), "a prepended and sorted file has its old ids");
    assert!(ids("jan.csv", Some("2025")).iter().all(|id| !january.contains(id)));
    let both = find(&[folder.path("jan.csv"), folder.path("new/jan.csv")], Finding::default()).unwrap_err().to_string();
    assert!(both.contains("have one name") && both.contains("--id-prefix"), "{both}");
}

#[test]
fn ids_of_a_column_are_taken_as_they_are() {
    let text = b"user,item,label,event\na,1,5,e-1\na,1,5,~3-7\n";
    let ids: Vec<String> = taken_of(text, &rules(&["id=event"])).into_iter().map(|row| row.observation_id).collect();
    assert_eq!(ids, ["e-1", "file.csv:~3-7"], "ids that a node made get the file's name");
}

#[test]
fn constants_and_columns_give_labels_weights_and_feedback() {
    let text = b"user,item,kg,kind\na,1,2.5,view\n";
    let constant = Rules { label: Some(1.0), weight: Some(3.0), feedback: Some("click".to_owned()), ..rules(&[]) };
    let row = taken_of(text, &constant).remove(0);
    assert_eq!((row.label, row.weight, row.feedback.as_deref()), (1.0, Some(3.0), Some("click")));
    let row = taken_of(text, &Rules { label: Some(1.0), ..rules(&["weight=kg", "feedback=kind"]) }).remove(0);
    assert_eq!((row.weight, row.feedback.as_deref()), (Some(2.5), Some("view")));
}

#[test]
fn a_row_without_end_is_refused_in_bounded_memory() {
    let mut text = b"user,item,label\na,1,5\n\"a,1,5\n".to_vec();
    text.extend(b"b,2,4\n".repeat(400_000));
    let folder = Folder::of(&[("r.csv", &text)]);
    let input = folder.input("r.csv").unwrap();
    let problem = checked(&input, &rules(&[])).unwrap_err().to_string();
    assert!(problem.contains("r.csv:3:") && problem.contains("closing quote"), "{problem}");
    let mut rows = Observations::open(&input, &rules(&[])).unwrap();
    assert!(rows.advance().unwrap().is_some());
    assert!(matches!(rows.advance(), Err(Fault::File(_))));
}

#[test]
fn movielens_folders_are_found_in_all_formats() {
    let rows: [(&str, &[u8]); 3] = [
        ("ratings.csv", b"userId,movieId,rating,timestamp\n1,2,3.5,881250949\n"),
        ("ratings.dat", b"1::2::3.5::881250949\n"),
        ("u.data", b"1\t2\t3.5\t881250949\n"),
    ];
    for (name, bytes) in rows {
        let folder = Folder::of(&[(name, bytes)]);
        let input = find(&[folder.0.path().to_owned()], Finding::default()).unwrap().remove(0);
        let row = taken(&input, &rules(&[])).remove(0);
        let found = (row.user.as_str(), row.item.as_str(), row.label, row.timestamp, row.feedback.as_deref());
        assert_eq!(found, ("1", "2", 3.5, Some(881_250_949_000), Some("rating")), "{name}");
    }
}

#[test]
fn clicks_of_0_and_1_suit_the_logistic_loss_and_counts_the_implicit_one() {
    let loss = |rows: &str| {
        let folder = Folder::of(&[("clicks.csv", format!("user,item,clicks\n{rows}").as_bytes())]);
        let (found, _) = checked(&folder.input("clicks.csv").unwrap(), &rules(&[])).unwrap();
        found.observations.unwrap().suitable_loss()
    };
    assert_eq!(loss("1,a,0\n1,b,1\n"), Loss::Logistic);
    assert_eq!(loss("1,a,3\n1,b,1\n"), Loss::Implicit);
    assert_eq!(loss("1,a,1\n1,b,1\n"), Loss::Implicit);
}
