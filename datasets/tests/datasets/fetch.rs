//! Downloads from a server on this machine: complete and verified, or nothing.

use std::collections::HashMap;
use std::fs;
use std::io::{BufRead, BufReader, Cursor, Write};
use std::net::TcpListener;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use celeris_datasets::fetch::Origin;
use celeris_datasets::{Dataset, DatasetError, FetchOptions, Fetched, fetch};
use md5::{Digest, Md5};
use zip::ZipWriter;
use zip::write::SimpleFileOptions;

const README: &str =
    "SUMMARY\n=======\n\nRatings.\n\nUSAGE LICENSE\n=============\n\nResearch only.\n\nCITATION\n========\n\nCite.\n";

/// The server's reply for one path.
#[derive(Clone)]
struct Reply {
    body: Vec<u8>,
    /// The length in the header.
    length: usize,
}

/// Serves `replies` until the test ends; other paths are 404.
struct Server {
    base_url: String,
    requests: Arc<AtomicUsize>,
}

impl Server {
    fn start(replies: HashMap<String, Reply>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let base_url = format!("http://{}/movielens/", listener.local_addr().unwrap());
        let requests = Arc::new(AtomicUsize::new(0));
        let counter = Arc::clone(&requests);
        thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = stream.unwrap();
                let lines: Vec<String> =
                    BufReader::new(&stream).lines().map_while(Result::ok).take_while(|line| !line.is_empty()).collect();
                counter.fetch_add(1, Ordering::SeqCst);
                let path = lines.first().and_then(|line| line.split(' ').nth(1)).unwrap_or_default();
                let not_found = Reply { body: Vec::new(), length: 0 };
                let (status, reply) = match replies.get(path.trim_start_matches("/movielens/")) {
                    Some(reply) => ("200 OK", reply),
                    None => ("404 Not Found", &not_found),
                };
                let head =
                    format!("HTTP/1.1 {status}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n", reply.length);
                // A client may close the connection early.
                let _ = stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(&reply.body));
            }
        });
        Self { base_url, requests }
    }

    /// Serves `archive` as `ml-100k.zip` with its checksum in the publisher's form.
    fn of_archive(archive: &[u8]) -> Self {
        let digest: String = Md5::digest(archive).iter().map(|byte| format!("{byte:02x}")).collect();
        Self::start(HashMap::from([
            ("ml-100k.zip".into(), whole(archive)),
            ("ml-100k.zip.md5".into(), whole(format!("MD5 (ml-100k.zip) = {digest}\n").as_bytes())),
        ]))
    }

    fn options(&self) -> FetchOptions {
        FetchOptions { base_url: self.base_url.clone(), ..Default::default() }
    }

    fn fetch(&self, destination: &Path) -> Result<Fetched, DatasetError> {
        fetch("ml-100k", destination, &self.options(), &mut |_, _| {})
    }
}

fn whole(body: &[u8]) -> Reply {
    Reply { body: body.to_vec(), length: body.len() }
}

fn archive(entries: &[(&str, &[u8])]) -> Vec<u8> {
    let mut writer = ZipWriter::new(Cursor::new(Vec::new()));
    for (name, bytes) in entries {
        writer.start_file(*name, SimpleFileOptions::default()).unwrap();
        writer.write_all(bytes).unwrap();
    }
    writer.finish().unwrap().into_inner()
}

fn good_archive() -> Vec<u8> {
    archive(&[
        ("ml-original/u.data", b"1\t2\t3\t0\n"),
        ("ml-original/README", README.as_bytes()),
        ("__MACOSX/._u.data", b"junk"),
    ])
}

fn assert_nothing_left(destination: &Path) {
    let left: Vec<_> = fs::read_dir(destination).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert!(left.is_empty(), "left behind: {left:?}");
}

#[test]
fn download_is_verified_unpacked_and_loads() {
    let archive = good_archive();
    let server = Server::of_archive(&archive);
    let root = tempfile::tempdir().unwrap();
    let destination = root.path().join("data");
    let mut seen = Vec::new();
    let fetched =
        fetch("ml-100k", &destination, &server.options(), &mut |bytes, total| seen.push((bytes, total))).unwrap();

    let size = archive.len() as u64;
    assert_eq!(seen.last(), Some(&(size, Some(size))));
    assert_eq!(fetched.folder, destination.join("ml-100k"));
    assert_eq!(fetched.license.as_deref(), Some("USAGE LICENSE\n=============\n\nResearch only."));
    assert_eq!(fetched.readme, Some(fetched.folder.join("README")));
    let Origin::Downloaded { bytes, sha256, .. } = fetched.origin else { panic!("it was not there") };
    assert_eq!((bytes, sha256.len()), (size, 64));
    assert_eq!(Dataset::load(&fetched.folder).unwrap().ratings.len(), 1);
    assert_eq!(fs::read_dir(&destination).unwrap().count(), 1, "no temporary folder is left");
}

#[test]
fn present_data_set_is_not_downloaded_again() {
    let server = Server::of_archive(&good_archive());
    let destination = tempfile::tempdir().unwrap();
    server.fetch(destination.path()).unwrap();
    let requests = server.requests.load(Ordering::SeqCst);
    let again = server.fetch(destination.path()).unwrap();
    assert_eq!(again.origin, Origin::AlreadyPresent);
    assert!(again.license.unwrap().contains("Research only."));
    assert_eq!(server.requests.load(Ordering::SeqCst), requests);
}

#[test]
fn an_unrelated_folder_is_not_changed() {
    let server = Server::of_archive(&good_archive());
    let destination = tempfile::tempdir().unwrap();
    let mine = destination.path().join("ml-100k/mine.txt");
    fs::create_dir(mine.parent().unwrap()).unwrap();
    fs::write(&mine, "mine").unwrap();
    assert!(matches!(server.fetch(destination.path()), Err(DatasetError::Occupied { .. })));
    assert_eq!(fs::read_to_string(mine).unwrap(), "mine");
}

#[test]
fn wrong_checksum_is_refused() {
    let checksum = b"0123456789abcdef0123456789ABCDEF  ml-100k.zip\n";
    let replies = [("ml-100k.zip".into(), whole(&good_archive())), ("ml-100k.zip.md5".into(), whole(checksum))];
    let destination = tempfile::tempdir().unwrap();
    let error = Server::start(HashMap::from(replies)).fetch(destination.path()).unwrap_err();
    let DatasetError::Checksum { expected, .. } = error else { panic!("{error}") };
    assert_eq!(expected, "0123456789abcdef0123456789abcdef");
    assert_nothing_left(destination.path());
}

#[test]
fn checksum_file_without_checksum_is_refused() {
    let replies = [("ml-100k.zip".into(), whole(&good_archive())), ("ml-100k.zip.md5".into(), whole(b"moved"))];
    let destination = tempfile::tempdir().unwrap();
    let error = Server::start(HashMap::from(replies)).fetch(destination.path()).unwrap_err();
    assert!(matches!(error, DatasetError::NoChecksum { .. }), "{error}");
    assert_nothing_left(destination.path());
}

#[test]
fn missing_archive_is_an_error_with_its_address() {
    let destination = tempfile::tempdir().unwrap();
    let server = Server::start(HashMap::new());
    let message = server.fetch(destination.path()).unwrap_err().to_string();
    assert!(message.contains("/movielens/ml-100k.zip") && message.contains("404"), "{message}");
    assert_nothing_left(destination.path());
}

#[test]
fn broken_off_download_is_refused() {
    let archive = good_archive();
    let half = Reply { body: archive[..archive.len() / 2].to_vec(), length: archive.len() };
    let checksum = whole(b"0123456789abcdef0123456789abcdef");
    let replies = [("ml-100k.zip".into(), half), ("ml-100k.zip.md5".into(), checksum)];
    let destination = tempfile::tempdir().unwrap();
    let error = Server::start(HashMap::from(replies)).fetch(destination.path()).unwrap_err();
    assert!(matches!(error, DatasetError::Download { .. }), "{error}");
    assert_nothing_left(destination.path());
}

#[test]
fn entries_that_leave_their_folder_are_refused() {
    for name in ["ml/../../escaped.txt", "../escaped.txt", "/escaped.txt", "ml\\..\\..\\escaped.txt"] {
        let server = Server::of_archive(&archive(&[("ml/u.data", b"1\t2\t3\t0\n"), (name, b"x")]));
        let root = tempfile::tempdir().unwrap();
        let destination = root.path().join("data");
        let error = server.fetch(&destination).unwrap_err();
        assert!(error.to_string().contains("outside of its folder"), "{name}: {error}");
        assert_nothing_left(&destination);
        assert_eq!(fs::read_dir(root.path()).unwrap().count(), 1, "{name} was written outside");
    }
}

#[test]
fn links_in_archives_are_refused() {
    let mut writer = ZipWriter::new(Cursor::new(Vec::new()));
    writer.add_symlink("ml/u.data", "/etc/hostname", SimpleFileOptions::default()).unwrap();
    let server = Server::of_archive(&writer.finish().unwrap().into_inner());
    let destination = tempfile::tempdir().unwrap();
    assert!(matches!(server.fetch(destination.path()), Err(DatasetError::Archive { .. })));
    assert_nothing_left(destination.path());
}

#[test]
fn archives_without_a_data_set_are_refused() {
    let cases = [
        (archive(&[("ml/notes.txt", b"x")]), "no ratings file"),
        (archive(&[("ml/u.data", b"1\t2\t3\t0\n"), ("other/x", b"x")]), "more than one folder"),
        (archive(&[("u.data", b"1\t2\t3\t0\n")]), "no folder"),
        (archive(&[]), "no folder"),
        (b"<html>not an archive</html>".to_vec(), "damaged"),
    ];
    for (archive, expected) in cases {
        let destination = tempfile::tempdir().unwrap();
        let message = Server::of_archive(&archive).fetch(destination.path()).unwrap_err().to_string();
        assert!(message.contains(expected), "{message}");
        assert_nothing_left(destination.path());
    }
}

#[test]
fn sizes_are_bounded_on_the_wire_and_unpacked() {
    let zeros = vec![b'0'; 1_000_000];
    let bomb = archive(&[("ml/u.data", b"1\t2\t3\t0\n"), ("ml/zeros", &zeros)]);
    let server = Server::of_archive(&bomb);
    let destination = tempfile::tempdir().unwrap();
    let small_disk = FetchOptions { unpacked_bytes_max: 500_000, ..server.options() };
    let error = fetch("ml-100k", destination.path(), &small_disk, &mut |_, _| {}).unwrap_err();
    assert!(error.to_string().contains("more than the limit of 500000 bytes"), "{error}");
    let small_wire = FetchOptions { download_bytes_max: bomb.len() as u64 - 1, ..server.options() };
    let error = fetch("ml-100k", destination.path(), &small_wire, &mut |_, _| {}).unwrap_err();
    assert!(matches!(error, DatasetError::DownloadTooLarge { .. }), "{error}");
    assert_nothing_left(destination.path());
}

#[test]
fn errors_of_unknown_names_list_the_known_ones() {
    let destination = tempfile::tempdir().unwrap();
    for name in ["ml-5k", "../ml-100k", ""] {
        let error = fetch(name, destination.path(), &FetchOptions::default(), &mut |_, _| {}).unwrap_err();
        assert!(matches!(error, DatasetError::UnknownName { .. }));
        assert!(error.to_string().contains("known are ml-latest-small, ml-latest, ml-100k, ml-1m"), "{error}");
    }
}
