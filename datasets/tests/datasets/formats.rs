//! All three formats, plain and compressed, give the same data set.

use std::fmt::Write as _;
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use celeris_datasets::{Dataset, DatasetError, ItemInfo, Rating, read_ratings};
use celeris_model::{ItemId, Timestamp, UserId};
use flate2::Compression;
use flate2::write::GzEncoder;
use proptest::prelude::*;
use proptest::test_runner::RngSeed;

/// In `u.item` order, as `u.genre` would number them.
const GENRES: [&str; 3] = ["unknown", "Comedy", "Film-Noir"];

#[derive(Debug, Clone, Copy)]
enum Format {
    Tab,
    DoubleColon,
    Csv,
}

const FORMATS: [Format; 3] = [Format::Tab, Format::DoubleColon, Format::Csv];

impl Format {
    fn ratings_file(self) -> &'static str {
        match self {
            Self::Tab => "u.data",
            Self::DoubleColon => "ratings.dat",
            Self::Csv => "ratings.csv",
        }
    }

    fn ratings_text(self, ratings: &[Rating]) -> String {
        let mut text =
            if let Self::Csv = self { "userId,movieId,rating,timestamp\r\n".to_owned() } else { String::new() };
        for Rating { user, item, label, timestamp, .. } in ratings {
            let seconds = timestamp.0 / 1000;
            match self {
                Self::Tab => writeln!(text, "{user}\t{item}\t{label}\t{seconds}"),
                Self::DoubleColon => writeln!(text, "{user}::{item}::{label}::{seconds}"),
                Self::Csv => writeln!(text, "\"{}\",{item},{label},{seconds}\r", user.as_str().replace('"', "\"\"")),
            }
            .unwrap();
        }
        text
    }

    fn write_items(self, folder: &Path, items: &[ItemInfo]) {
        let mut text = String::new();
        for ItemInfo { id, title, genres } in items {
            let joined = genres.join("|");
            match self {
                Self::Tab => {
                    let flags = GENRES.map(|genre| u8::from(genres.iter().any(|own| own == genre)).to_string());
                    writeln!(text, "{id}|{title}|01-Jan-1995||http://example.org|{}", flags.join("|"))
                }
                Self::DoubleColon => writeln!(text, "{id}::{title}::{joined}"),
                Self::Csv => writeln!(text, "{id},\"{}\",{joined}", title.replace('"', "\"\"")),
            }
            .unwrap();
        }
        let latin1 = || text.chars().map(|c| u8::try_from(u32::from(c)).unwrap()).collect::<Vec<u8>>();
        match self {
            Self::Tab => {
                let genres: String = (0..).zip(GENRES).map(|(n, genre)| format!("{genre}|{n}\n")).collect();
                fs::write(folder.join("u.genre"), genres).unwrap();
                fs::write(folder.join("u.item"), latin1()).unwrap();
            }
            Self::DoubleColon => fs::write(folder.join("movies.dat"), latin1()).unwrap(),
            Self::Csv => fs::write(folder.join("movies.csv"), format!("movieId,title,genres\n{text}")).unwrap(),
        }
    }
}

fn rating(user: &str, item: &str, label: f32, seconds: i64) -> Rating {
    Rating {
        user: UserId::new(user).unwrap(),
        item: ItemId::new(item).unwrap(),
        label,
        weight: 1.0,
        timestamp: Timestamp(seconds * 1000),
    }
}

fn item(id: &str, title: &str, genres: &[&str]) -> ItemInfo {
    let genres = genres.iter().map(|genre| (*genre).to_owned()).collect();
    ItemInfo { id: ItemId::new(id).unwrap(), title: title.to_owned(), genres }
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

fn in_folder(files: &[(&str, &[u8])]) -> (tempfile::TempDir, PathBuf) {
    let root = tempfile::tempdir().unwrap();
    let folder = root.path().join("films");
    fs::create_dir(&folder).unwrap();
    for (name, bytes) in files {
        fs::write(folder.join(name), bytes).unwrap();
    }
    (root, folder)
}

fn sample() -> (Vec<Rating>, Vec<ItemInfo>) {
    let ratings = vec![
        rating("196", "242", 3.0, 881_250_949),
        rating("186", "302", 3.5, 891_717_742),
        rating("196", "242", 5.0, 0),
    ];
    let items = vec![
        item("242", "Misérables, Les (1995)", &["Comedy", "Film-Noir"]),
        item("302", "\"Heat\" (1995)", &["Film-Noir"]),
        item("9", "Never Rated (1990)", &[]),
    ];
    (ratings, items)
}

#[test]
fn every_format_plain_or_compressed_gives_the_same_dataset() {
    let (ratings, items) = sample();
    let expected = Dataset { name: "films".into(), ratings, items };
    for format in FORMATS {
        let text = format.ratings_text(&expected.ratings);
        let (_root, folder) = in_folder(&[(format.ratings_file(), text.as_bytes())]);
        format.write_items(&folder, &expected.items);
        let file = folder.join(format.ratings_file());
        assert_eq!(Dataset::load(&folder).unwrap(), expected, "{format:?} folder");
        assert_eq!(Dataset::load(&file).unwrap(), expected, "{format:?} file");

        fs::write(folder.join(format!("{}.gz", format.ratings_file())), gzip(text.as_bytes())).unwrap();
        fs::remove_file(&file).unwrap();
        assert_eq!(Dataset::load(&folder).unwrap(), expected, "{format:?} compressed");
    }
}

#[test]
fn the_format_is_detected_from_the_content() {
    let (ratings, _) = sample();
    for format in FORMATS {
        let text = format.ratings_text(&ratings);
        for bytes in [text.clone().into_bytes(), gzip(text.as_bytes())] {
            let (_root, folder) = in_folder(&[("download.bin", &bytes)]);
            let dataset = Dataset::load(folder.join("download.bin")).unwrap();
            assert_eq!(dataset.ratings, ratings, "{format:?}");
            assert!(dataset.items.is_empty());
        }
    }
}

#[test]
fn csv_columns_are_found_by_name_in_any_case_and_order() {
    let expected = [rating("7", "42", 4.5, 0)];
    for text in [
        "userid,movieid,rating\n7,42,4.5\n",
        "\u{feff}userId,movieId,rating\n7,42,4.5",
        "rating,extra,MOVIEID,userId\n4.5,\"x, \"\"y\"\"\",42,7\n",
        "user_id,item_id,rating\r\n\r\n7,42,4.5\r\n\r\n",
        "\"userId\",\"movieId\",\"rating\",\"timestamp\"\n\"7\",\"42\",\"4.5\",\"0\"\n",
    ] {
        let (_root, folder) = in_folder(&[("ratings.csv", text.as_bytes())]);
        assert_eq!(Dataset::load(&folder).unwrap().ratings, expected, "{text:?}");
    }
}

#[test]
fn flags_have_the_standard_genres_without_a_genre_file() {
    let flags = "0|1|0|0|0|0|0|0|0|0|0|1|0|0|0|0|0|0|1";
    let line = format!("5|Copycat (1995)|01-Jan-1995|||{flags}\n");
    let (_root, folder) = in_folder(&[("u.data", b"1\t5\t3\t0\n"), ("u.item", line.as_bytes())]);
    let dataset = Dataset::load(&folder).unwrap();
    let id = ItemId::new("5").unwrap();
    assert_eq!(dataset.items_by_id()[&id].genres, ["Action", "Horror", "Western"]);
}

#[test]
fn titles_may_be_utf8_in_dat_and_hold_line_breaks_in_csv() {
    let (_root, folder) =
        in_folder(&[("ratings.dat", b"1::5::3::0\n"), ("movies.dat", "5::Amélie (2001)::Comedy\n".as_bytes())]);
    assert_eq!(Dataset::load(&folder).unwrap().items, [item("5", "Amélie (2001)", &["Comedy"])]);

    let movies = b"movieId,title,genres\n5,\"Two\nLines\",(no genres listed)\n6,Next,Comedy\n";
    let (_root, folder) = in_folder(&[("ratings.csv", b"userId,movieId,rating\n1,5,3\n"), ("movies.csv", movies)]);
    let expected = [item("5", "Two\nLines", &[]), item("6", "Next", &["Comedy"])];
    assert_eq!(Dataset::load(&folder).unwrap().items, expected);
}

#[test]
fn streaming_ends_after_the_first_error() {
    let (_root, folder) = in_folder(&[("u.data", b"1\t5\t3\t0\n1\t5\tx\t0\n1\t5\t3\t0\n")]);
    let mut reader = read_ratings(&folder).unwrap();
    assert_eq!(reader.file(), folder.join("u.data"));
    assert!(reader.next().unwrap().is_ok());
    assert!(matches!(reader.next(), Some(Err(DatasetError::BadField { line: 2, .. }))));
    assert!(reader.next().is_none());
}

#[test]
fn long_ids_are_shared_between_ratings() {
    let line = "a user of many letters\tan item of many letters\t3\t0\n";
    let (_root, folder) = in_folder(&[("u.data", line.repeat(2).as_bytes())]);
    let ratings = Dataset::load(&folder).unwrap().ratings;
    assert!(std::ptr::eq(ratings[0].user.as_str(), ratings[1].user.as_str()));
    assert!(std::ptr::eq(ratings[0].item.as_str(), ratings[1].item.as_str()));
}

/// Any id that the separated formats can hold: no separator in it, and no colon at an end, which
/// would extend a separator.
fn id() -> impl Strategy<Value = String> {
    "[a-zA-Z0-9 \"é,;|-]{1,20}".prop_filter("CSV writes the item unquoted", |id| !id.contains(['"', ',']))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, rng_seed: RngSeed::Fixed(1), failure_persistence: None, ..Default::default() })]

    #[test]
    fn written_data_sets_are_read_back(
        rows in prop::collection::vec((id(), id(), -1e6_f32..1e6, 0_i64..4_000_000_000), 1..40),
    ) {
        let ratings: Vec<Rating> =
            rows.iter().map(|(user, item, label, seconds)| rating(user, item, *label, *seconds)).collect();
        for format in FORMATS {
            let (_root, folder) = in_folder(&[(format.ratings_file(), format.ratings_text(&ratings).as_bytes())]);
            prop_assert_eq!(&Dataset::load(&folder).unwrap().ratings, &ratings, "{:?}", format);
        }
    }
}
