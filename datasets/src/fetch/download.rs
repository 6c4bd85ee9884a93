//! Bounded downloads over HTTP.

use std::fs::File;
use std::io::{self, Read, Write};
use std::path::Path;
use std::time::Duration;

use md5::Md5;
use sha2::{Digest, Sha256};
use ureq::http::Response;
use ureq::{Agent, Body};

use crate::DatasetError;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(30);
const READ_TIMEOUT: Duration = Duration::from_secs(60);

/// Maximum duration of one download.
const TOTAL_TIMEOUT: Duration = Duration::from_secs(6 * 3600);

/// Maximum size of a checksum file; it is one line.
const CHECKSUM_FILE_BYTES_MAX: u64 = 4096;

const MD5_HEX_DIGITS: usize = 32;

/// A downloaded file.
pub(super) struct Arrived {
    pub(super) bytes: u64,
    pub(super) md5: String,
    pub(super) sha256: String,
}

/// Reads the checksum from a file such as `MD5 (ml-1m.zip) = c4d9…` or `c4d9…  ml-1m.zip`.
pub(super) fn published_md5(url: &str) -> Result<String, DatasetError> {
    let mut text = Vec::new();
    let mut body = get(url)?.into_body().into_reader().take(CHECKSUM_FILE_BYTES_MAX);
    body.read_to_end(&mut text).map_err(|source| broken_off(url, source))?;
    String::from_utf8_lossy(&text)
        .split(|c: char| !c.is_ascii_alphanumeric())
        .find(|word| word.len() == MD5_HEX_DIGITS && word.bytes().all(|byte| byte.is_ascii_hexdigit()))
        .map(str::to_ascii_lowercase)
        .ok_or_else(|| DatasetError::NoChecksum { url: url.to_owned() })
}

/// Downloads to `file` and computes its checksums.
pub(super) fn to_file(
    url: &str,
    file: &Path,
    bytes_max: u64,
    progress: &mut dyn FnMut(u64, Option<u64>),
) -> Result<Arrived, DatasetError> {
    let too_large = || DatasetError::DownloadTooLarge { url: url.to_owned(), bytes_max };
    let body = get(url)?.into_body();
    let total = body.content_length();
    if total.is_some_and(|total| total > bytes_max) {
        return Err(too_large());
    }
    let mut output = File::create(file).map_err(DatasetError::io(file))?;
    let mut input = body.into_reader();
    let (mut md5, mut sha256) = (Md5::new(), Sha256::new());
    let mut buffer = vec![0; 64 * 1024];
    let mut bytes = 0;
    loop {
        let read = input.read(&mut buffer).map_err(|source| broken_off(url, source))?;
        if read == 0 {
            break;
        }
        bytes += read as u64;
        if bytes > bytes_max {
            return Err(too_large());
        }
        let chunk = &buffer[..read];
        md5.update(chunk);
        sha256.update(chunk);
        output.write_all(chunk).map_err(DatasetError::io(file))?;
        progress(bytes, total);
    }
    Ok(Arrived { bytes, md5: hexadecimal(&md5.finalize()), sha256: hexadecimal(&sha256.finalize()) })
}

fn get(url: &str) -> Result<Response<Body>, DatasetError> {
    let config = Agent::config_builder()
        .timeout_connect(Some(CONNECT_TIMEOUT))
        .timeout_recv_response(Some(READ_TIMEOUT))
        .timeout_per_read(Some(READ_TIMEOUT))
        .timeout_global(Some(TOTAL_TIMEOUT))
        .build();
    let failed = |source| DatasetError::Download { url: url.to_owned(), source: Box::new(source) };
    Agent::new_with_config(config).get(url).call().map_err(failed)
}

fn broken_off(url: &str, source: io::Error) -> DatasetError {
    DatasetError::Download { url: url.to_owned(), source: Box::new(ureq::Error::from(source)) }
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
