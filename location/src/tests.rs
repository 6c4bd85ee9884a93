use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use object_store::aws::AmazonS3ConfigKey;

use super::*;

/// More than one part of an upload.
const LARGE: usize = (33 << 20) + 17;

fn bytes(len: usize) -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (state >> 56) as u8
    };
    (0..len).map(|_| next()).collect()
}

fn read(location: &Location) -> Vec<u8> {
    let mut contents = Vec::new();
    location.read().unwrap().read_to_end(&mut contents).unwrap();
    contents
}

/// What every place can do.
fn check_place(place: &Location) {
    assert_eq!(place.list().unwrap(), []);
    let file = place.child("a folder/file, 1.sst").unwrap();
    assert!(matches!(file.size(), Err(LocationError::NotFound { .. })) && !file.exists().unwrap());
    assert!(matches!(file.read().map(drop), Err(LocationError::NotFound { .. })));
    file.delete().unwrap();

    assert!(file.put_if_absent("first").unwrap());
    assert!(!file.put_if_absent("second").unwrap());
    assert_eq!(read(&file), b"first");
    file.put("third, longer").unwrap();
    assert_eq!((file.size().unwrap(), read(&file)), (13, b"third, longer".to_vec()));
    assert_eq!(file.read_range(3..8).unwrap(), "rd, l");
    assert_eq!(file.read_range(8..100).unwrap(), "onger");
    assert_eq!(file.read_range(13..20).unwrap(), "");
    assert!(matches!(file.read_all(12), Err(LocationError::TooLong { .. })));
    assert_eq!(file.read_all(13).unwrap(), b"third, longer");

    let large = place.child("large").unwrap();
    let contents = bytes(LARGE);
    let mut writer = large.write().unwrap();
    writer.write_all(&contents).unwrap();
    assert!(!large.exists().unwrap(), "it appears only when it is whole");
    writer.finish().unwrap();
    assert!(read(&large) == contents);
    let mut given_up = large.write().unwrap();
    given_up.write_all(&contents[..LARGE / 2]).unwrap();
    drop(given_up);
    assert!(read(&large) == contents);

    place.child("empty").unwrap().write().unwrap().finish().unwrap();
    let listed: Vec<(String, u64)> = place.list().unwrap().into_iter().map(|entry| (entry.name, entry.bytes)).collect();
    let expected = [("a folder/file, 1.sst", 13), ("empty", 0), ("large", LARGE as u64)];
    assert_eq!(listed, expected.map(|(name, bytes)| (name.to_owned(), bytes)));
    for (name, _) in listed {
        place.child(&name).unwrap().delete().unwrap();
    }
    assert_eq!(place.list().unwrap(), []);
}

#[test]
fn a_folder_keeps_files() {
    let dir = tempfile::tempdir().unwrap();
    check_place(&Location::parse(dir.path().join("new/below").to_str().unwrap()).unwrap());
    check_place(&Location::parse(&format!("file://{}/other%20name", dir.path().display())).unwrap());
    assert!(dir.path().join("other name").is_dir());
}

#[test]
fn an_object_store_keeps_files() {
    let Some(server) = Moto::start() else { return };
    check_place(&server.location("s3://backups/some/folder"));
    // The names of another folder begin alike.
    server.location("s3://backups/ab/file").put("x").unwrap();
    assert_eq!(server.location("s3://backups/a").list().unwrap(), []);
    assert_eq!(server.location("s3://backups").list().unwrap()[0].name, "ab/file");
    let error = server.location("s3://missing/x").put("x").unwrap_err().to_string();
    assert!(error.starts_with("s3://missing/x: cannot write it: ") && error.contains("NoSuchBucket"), "{error}");
}

#[test]
fn of_callers_at_once_one_puts_the_file() {
    let dir = tempfile::tempdir().unwrap();
    let file = Location::folder(dir.path()).child("lock").unwrap();
    let won = thread::scope(|scope| {
        let threads: Vec<_> = (0..8)
            .map(|number| {
                scope.spawn({
                    let file = &file;
                    move || file.put_if_absent(number.to_string()).unwrap()
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).filter(|won| *won).count()
    });
    assert_eq!(won, 1);
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1, "no unfinished file is left");
}

#[test]
fn texts_that_are_no_places_are_refused() {
    for (text, problem) in [
        ("", "it is empty"),
        ("ftp://host/file", "no store has the scheme ftp"),
        ("s3://key:secret@bucket/x", "credentials belong in environment variables"),
        ("https://user@host/x", "credentials belong in environment variables"),
        ("https://host/x?signature=secret", "a URL with `?`"),
        ("file://host/x", "file:///PATH"),
        ("http://", "empty host"),
        ("s3:///x", ""),
    ] {
        let error = Location::parse(text).unwrap_err().to_string();
        assert!(error.contains(problem) && !error.contains("secret"), "{text}: {error}");
    }
    assert_eq!(Location::parse("a:b").unwrap().as_path(), Some(Path::new("a:b")));
    for name in ["", "..", "a/../b", "/a", "a//b", "a/", ".", "a\0b", "a\\b"] {
        assert!(Location::folder("/tmp").child(name).is_err(), "{name}");
        assert!(Location::parse("http://host/folder").unwrap().child(name).is_err(), "{name}");
    }
}

#[test]
fn a_blocking_call_may_come_from_a_thread_of_a_runtime() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).build().unwrap();
    let url = Breaking::start(b"contents".to_vec(), 3);
    let contents = runtime.block_on(async move { read(&Location::parse(&url).unwrap()) });
    assert_eq!(contents, b"contents");
}

#[test]
fn a_transfer_that_breaks_off_is_continued() {
    let contents = bytes(1 << 20);
    let url = Breaking::start(contents.clone(), 300_000);
    assert!(read(&Location::parse(&url).unwrap()) == contents);
}

#[test]
fn a_transfer_that_never_gets_on_fails() {
    let url = Breaking::start(bytes(1000), 0);
    let mut contents = Vec::new();
    let error = Location::parse(&url).unwrap().read().unwrap().read_to_end(&mut contents).unwrap_err();
    assert!(contents.is_empty() && error.to_string().starts_with(&url), "{error}");
}

/// A server of one file over HTTP that closes each connection after some bytes of the file.
struct Breaking;

impl Breaking {
    fn start(contents: Vec<u8>, bytes_sent: usize) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/file", listener.local_addr().unwrap());
        thread::spawn(move || {
            for stream in listener.incoming() {
                // The client may have gone.
                let _ = Self::answer(stream.unwrap(), &contents, bytes_sent);
            }
        });
        url
    }

    fn answer(mut stream: TcpStream, contents: &[u8], bytes_sent: usize) -> std::io::Result<()> {
        let mut start = 0;
        for line in BufReader::new(stream.try_clone()?).lines() {
            let line = line?.to_ascii_lowercase();
            if line.is_empty() {
                break;
            }
            if let Some(range) = line.strip_prefix("range: bytes=") {
                start = range.trim_end_matches('-').parse().unwrap();
            }
        }
        let rest = &contents[start..];
        let status = if start == 0 { "200 OK" } else { "206 Partial Content" };
        let range = format!("Content-Range: bytes {start}-{}/{}\r\n", contents.len() - 1, contents.len());
        let range = if start == 0 { String::new() } else { range };
        let length = rest.len();
        write!(stream, "HTTP/1.1 {status}\r\nContent-Length: {length}\r\n{range}Connection: close\r\n\r\n")?;
        stream.write_all(&rest[..rest.len().min(bytes_sent)])
    }
}

/// A server with the interface of S3.
struct Moto {
    process: Child,
    endpoint: String,
}

impl Moto {
    fn start() -> Option<Self> {
        let program =
            celeris_skip::unless(celeris_skip::Need::ObjectStore, Self::program(), "there is no moto_server")?;
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let mut command = Command::new(program);
        command.args(["-H", "127.0.0.1", "-p", &port.to_string()]).stdout(Stdio::null()).stderr(Stdio::null());
        let server = Self { process: command.spawn().unwrap(), endpoint: format!("http://127.0.0.1:{port}") };
        let deadline = Instant::now() + Duration::from_secs(60);
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            assert!(Instant::now() < deadline, "moto_server does not listen");
            thread::yield_now();
        }
        // A bucket is a folder of the server.
        Location::parse(&server.endpoint).unwrap().child("backups").unwrap().put("").unwrap();
        Some(server)
    }

    fn program() -> Option<PathBuf> {
        let named = std::env::var_os("CELERIS_MOTO_SERVER").map(PathBuf::from);
        let installed = std::env::home_dir().map(|home| home.join(".cache/celeris/peers/moto/bin/moto_server"));
        [named, installed].into_iter().flatten().find(|path| path.is_file())
    }

    fn location(&self, text: &str) -> Location {
        let settings = [
            (AmazonS3ConfigKey::Endpoint, self.endpoint.as_str()),
            (AmazonS3ConfigKey::AccessKeyId, "test"),
            (AmazonS3ConfigKey::SecretAccessKey, "test"),
            (AmazonS3ConfigKey::Client(object_store::ClientConfigKey::AllowHttp), "true"),
        ];
        parse::parse_with(text, &settings.map(|(key, value)| (key, value.to_owned()))).unwrap()
    }
}

impl Drop for Moto {
    fn drop(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }
}
