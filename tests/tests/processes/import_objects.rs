//! `celeris import` of objects behind URLs: over HTTP, and in a store with the interface of S3.

use std::io::{self, BufRead as _, BufReader, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::thread;

use arrow_array::{ArrayRef, Int64Array, RecordBatch, StringArray};
use celeris_skip::Need;
use celeris_tests::binary;
use celeris_tests::fixtures::create_model;
use celeris_tests::{ModelClient, NodeProcess, eventually};
use parquet::arrow::ArrowWriter;
use parquet::file::properties::WriterProperties;

/// Runs an import with these variables, and returns its standard error.
#[track_caller]
fn imported(model: &ModelClient, variables: &[(&str, &str)], arguments: &[&str]) -> String {
    let mut command = binary::command();
    command.envs(variables.iter().copied());
    command.args(["import", "--model", model.name(), "--url", model.node().url()]).args(arguments);
    let done = command.output().unwrap();
    let stderr = String::from_utf8(done.stderr).unwrap();
    assert_eq!(done.status.code(), Some(0), "{stderr}");
    stderr
}

fn csv(user: &str, rows: usize) -> Vec<u8> {
    let rows: String = (0..rows).map(|row| format!("{user}{},i{},{}\n", row % 50, row % 90, row % 5)).collect();
    format!("user,item,label\n{rows}").into_bytes()
}

/// A file of several row groups and pages.
fn parquet(rows: i64) -> Vec<u8> {
    let users: StringArray = (0..rows).map(|row| Some(format!("u{}", row % 50))).collect();
    let items: StringArray = (0..rows).map(|row| Some(format!("i{row}"))).collect();
    let labels = Int64Array::from_iter_values((0..rows).map(|row| row % 5));
    let columns: [(&str, ArrayRef); 3] =
        [("user", Arc::new(users)), ("item", Arc::new(items)), ("label", Arc::new(labels))];
    let batch = RecordBatch::try_from_iter(columns).unwrap();
    let properties =
        WriterProperties::builder().set_max_row_group_row_count(Some(1000)).set_data_page_size_limit(4096).build();
    let mut bytes = Vec::new();
    let mut writer = ArrowWriter::try_new(&mut bytes, batch.schema(), Some(properties)).unwrap();
    writer.write(&batch).unwrap();
    writer.close().unwrap();
    bytes
}

/// A server of files that takes `HEAD` and `GET` of ranges.
fn serve(files: Vec<(&'static str, Vec<u8>)>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let files = Arc::new(files);
    thread::spawn(move || {
        for stream in listener.incoming() {
            let files = files.clone();
            // A reader that needs no more closes the connection.
            thread::spawn(move || drop(answer(stream.unwrap(), &files)));
        }
    });
    url
}

fn answer(mut stream: TcpStream, files: &[(&str, Vec<u8>)]) -> io::Result<()> {
    let mut lines = BufReader::new(stream.try_clone()?).lines();
    let first = lines.next().unwrap_or_else(|| Ok(String::new()))?;
    let mut range = None;
    for line in lines {
        let line = line?.to_ascii_lowercase();
        if line.is_empty() {
            break;
        }
        range = line.strip_prefix("range: bytes=").map(str::to_owned).or(range);
    }
    let path = first.split(' ').nth(1).unwrap_or_default();
    let Some((_, bytes)) = files.iter().find(|(name, _)| *name == path) else {
        return write!(stream, "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
    };
    let range = range.and_then(|range| {
        let (start, end) = range.split_once('-')?;
        let start: usize = start.parse().ok()?;
        Some(start..end.parse().map_or(bytes.len(), |end: usize| end + 1).min(bytes.len()))
    });
    let (status, of_range, bytes) = match range {
        None => ("200 OK", String::new(), bytes.as_slice()),
        Some(range) => {
            let of_range = format!("Content-Range: bytes {}-{}/{}\r\n", range.start, range.end - 1, bytes.len());
            ("206 Partial Content", of_range, &bytes[range])
        }
    };
    write!(
        stream,
        "HTTP/1.1 {status}\r\nContent-Length: {}\r\n{of_range}Accept-Ranges: bytes\r\nLast-Modified: Tue, 15 Nov 2022 12:45:26 \
         GMT\r\nETag: \"x\"\r\nConnection: close\r\n\r\n",
        bytes.len()
    )?;
    if first.starts_with("GET") { stream.write_all(bytes) } else { Ok(()) }
}

fn observations(model: &ModelClient) -> u64 {
    model.get("").expect(200)["observations"].as_u64().unwrap()
}

#[test]
fn files_behind_urls_are_imported_and_have_the_ids_of_their_copies() {
    let dir = tempfile::tempdir().unwrap();
    let node = NodeProcess::serve(&dir.path().join("data"));
    let films = create_model(&node.client(), "films", 1);
    let url = serve(vec![("/a/rows.csv", csv("u", 3000)), ("/b/rows.parquet", parquet(5000))]);

    let (of_text, of_parquet) = (format!("{url}/a/rows.csv"), format!("{url}/b/rows.parquet"));
    let state = dir.path().join("state.json");
    let arguments = [of_text.as_str(), &of_parquet, "--resume", state.to_str().unwrap()];
    let stderr = imported(&films, &[], &arguments);
    assert!(stderr.contains("8000 observations taken, 0 were there already"), "{stderr}");
    let stderr = imported(&films, &[], &arguments);
    assert!(stderr.contains("rows.parquet: complete, with 5000 rows acknowledged before"), "{stderr}");
    assert!(stderr.contains("8000 observations were acknowledged before, 0 observations taken"), "{stderr}");

    let copy = dir.path().join("rows.parquet");
    std::fs::write(&copy, parquet(5000)).unwrap();
    let stderr = imported(&films, &[], &[copy.to_str().unwrap()]);
    assert!(stderr.contains("0 observations taken, 5000 were there already"), "{stderr}");
    assert_eq!(observations(&films), 8000);

    for (wrong, problem) in [
        (format!("{url}/nothing.csv"), "nothing.csv"),
        ("ftp://host/x.csv".to_owned(), "no store has the scheme ftp"),
        ("s3://key:secret@bucket/x.csv".to_owned(), "credentials belong in environment variables"),
    ] {
        let done = binary::run(["import", &wrong, "--dry-run"]);
        assert_eq!(done.code, Some(2), "{done:?}");
        assert!(done.stderr.contains(problem) && !done.stderr.contains("secret"), "{}", done.stderr);
    }
}

/// A server with the interface of S3.
struct Moto {
    process: Child,
    endpoint: String,
}

impl Moto {
    fn start() -> Option<Self> {
        let named = std::env::var_os("CELERIS_MOTO_SERVER").map(PathBuf::from);
        let installed = std::env::home_dir().map(|home| home.join(".cache/celeris/peers/moto/bin/moto_server"));
        let program = [named, installed].into_iter().flatten().find(|path| path.is_file());
        let program = celeris_skip::unless(Need::ObjectStore, program, "there is no moto_server")?;
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let mut command = Command::new(program);
        command.args(["-H", "127.0.0.1", "-p", &port.to_string()]).stdout(Stdio::null()).stderr(Stdio::null());
        let server = Self { process: command.spawn().unwrap(), endpoint: format!("http://127.0.0.1:{port}") };
        eventually("moto_server", || TcpStream::connect(("127.0.0.1", port)).ok());
        server.put("/data", b"");
        Some(server)
    }

    fn put(&self, path: &str, bytes: &[u8]) {
        let answer = ureq::put(format!("{}{path}", self.endpoint)).send(bytes);
        assert_eq!(answer.unwrap().status(), 200);
    }
}

impl Drop for Moto {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[test]
fn objects_below_a_prefix_of_a_store_are_imported() {
    let Some(server) = Moto::start() else { return };
    let dir = tempfile::tempdir().unwrap();
    let node = NodeProcess::serve(&dir.path().join("data"));
    let films = create_model(&node.client(), "films", 1);
    server.put("/data/export/stream=films/a.parquet", &parquet(2500));
    server.put("/data/logs/jan.csv", &csv("u", 100));
    server.put("/data/logs/feb.csv", &csv("v", 50));
    server.put("/data/logs/_SUCCESS", b"x");
    server.put("/data/logs/readme.md", b"# these are logs");
    let variables = [
        ("AWS_ENDPOINT", server.endpoint.as_str()),
        ("AWS_ACCESS_KEY_ID", "test"),
        ("AWS_SECRET_ACCESS_KEY", "test"),
        ("AWS_ALLOW_HTTP", "true"),
        ("AWS_REGION", "us-east-1"),
    ];
    let stderr = imported(&films, &variables, &["s3://data/logs/"]);
    assert!(stderr.contains("150 observations taken, 0 were there already"), "{stderr}");
    let stderr = imported(&films, &variables, &["s3://data/export"]);
    assert!(stderr.contains("2500 observations taken, 0 were there already"), "{stderr}");
    let copy = dir.path().join("stream=films");
    std::fs::create_dir(&copy).unwrap();
    std::fs::write(copy.join("a.parquet"), parquet(2500)).unwrap();
    let stderr = imported(&films, &[], &[copy.to_str().unwrap()]);
    assert!(stderr.contains("0 observations taken, 2500 were there already"), "{stderr}");
    assert_eq!(observations(&films), 2650);

    let mut command = binary::command();
    let done = command.envs(variables).args(["import", "s3://data/empty/", "--dry-run"]).output().unwrap();
    let stderr = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.code() == Some(2) && stderr.contains("s3://data/empty/: is no file"), "{stderr}");
}
