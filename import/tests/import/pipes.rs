//! Pipes such as `<(zcat …)`: paths that can be read only once.

use std::fs;
use std::process::Command;
use std::thread::{JoinHandle, spawn};

use crate::{Folder, rules};
use celeris_import::{Input, Observations};

/// A named pipe in the folder into which these bytes are being written.
fn pipe(folder: &Folder, bytes: &'static [u8]) -> (Input, JoinHandle<()>) {
    let path = folder.path("pipe");
    assert!(Command::new("mkfifo").arg(&path).status().unwrap().success());
    let input = folder.input("pipe").unwrap();
    // A reader that refuses the beginning closes the pipe before all is written.
    (input, spawn(move || drop(fs::write(path, bytes))))
}

#[test]
fn a_pipe_is_read_from_its_first_byte() {
    let folder = Folder::of(&[]);
    let (input, writer) = pipe(&folder, b"user,item,label\nu1,i1,5\nu2,i2,4\n");
    let mut rows = Observations::open(&input, &rules(&[])).unwrap();
    let users: Vec<String> = std::iter::from_fn(|| rows.advance().unwrap()).map(|taken| taken.user).collect();
    assert_eq!(users, ["u1", "u2"]);
    writer.join().unwrap();
}

#[test]
fn parquet_from_a_pipe_is_refused_with_what_to_do() {
    let folder = Folder::of(&[]);
    let (input, writer) = pipe(&folder, b"PAR1 and so on");
    let problem = Observations::open(&input, &rules(&[])).err().unwrap().to_string();
    assert!(problem.contains("is Parquet") && problem.contains("write it to a file first"), "{problem}");
    writer.join().unwrap();
}
