//! HTTP as raw bytes on a socket, for requests that a well-behaved client cannot send: incomplete
//! heads, foreign hosts, delayed bodies.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{Shutdown, TcpStream};

use serde_json::Value;

use crate::client::Client;
use crate::wait::DEADLINE;

/// A connection to a node.
pub struct Raw {
    reader: BufReader<TcpStream>,
}

/// A response.
#[derive(Debug)]
pub struct RawReply {
    pub status: u16,
    /// The headers in the order of their arrival, with names in lower case.
    pub headers: Vec<(String, String)>,
    /// The body, as text.
    pub text: String,
}

impl Raw {
    /// Connects to a node. Reads fail after [`DEADLINE`].
    ///
    /// # Panics
    /// If the connection fails.
    #[track_caller]
    #[must_use]
    pub fn connect(client: &Client) -> Self {
        let stream = TcpStream::connect(client.address()).expect("the node listens");
        stream.set_read_timeout(Some(DEADLINE)).expect("a deadline above zero");
        Self { reader: BufReader::new(stream) }
    }

    /// Sends bytes as they are.
    ///
    /// # Errors
    /// If the node has closed the connection.
    pub fn send(&mut self, text: &str) -> io::Result<()> {
        self.reader.get_mut().write_all(text.as_bytes())
    }

    /// Shuts down the sending side of the connection.
    ///
    /// # Errors
    /// If the connection is closed.
    pub fn finish_sending(&mut self) -> io::Result<()> {
        self.reader.get_mut().shutdown(Shutdown::Write)
    }

    /// Reads a complete response.
    ///
    /// # Errors
    /// If the connection closes before the response is complete.
    pub fn reply(&mut self) -> io::Result<RawReply> {
        let mut reply = self.head()?;
        let mut body = Vec::new();
        match (reply.header("content-length"), reply.header("transfer-encoding")) {
            (Some(length), _) => {
                body.resize(length.parse().map_err(io::Error::other)?, 0);
                self.reader.read_exact(&mut body)?;
            }
            (None, Some("chunked")) => while self.chunk(&mut body)? {},
            _ => {}
        }
        reply.text = String::from_utf8(body).map_err(io::Error::other)?;
        Ok(reply)
    }

    /// Reads the head of a response.
    ///
    /// # Errors
    /// If the connection closes before it is complete.
    pub fn head(&mut self) -> io::Result<RawReply> {
        let first = self.line()?;
        let status = first.split(' ').nth(1).and_then(|status| status.parse().ok());
        let status = status.ok_or_else(|| io::Error::other(format!("no status in {first:?}")))?;
        let mut headers = Vec::new();
        loop {
            let line = self.line()?;
            let Some((name, value)) = line.split_once(':') else { break };
            headers.push((name.to_ascii_lowercase(), value.trim().to_owned()));
        }
        Ok(RawReply { status, headers, text: String::new() })
    }

    /// Appends one chunk to `body`, and returns whether another may follow.
    ///
    /// # Errors
    /// If the connection closes before it is complete.
    pub fn chunk(&mut self, body: &mut Vec<u8>) -> io::Result<bool> {
        let length = usize::from_str_radix(&self.line()?, 16).map_err(io::Error::other)?;
        let from = body.len();
        body.resize(from + length, 0);
        self.reader.read_exact(&mut body[from..])?;
        self.line()?;
        Ok(length > 0)
    }

    /// Waits until the node closes the connection.
    ///
    /// # Panics
    /// If it does not by the deadline.
    #[track_caller]
    pub fn closed(&mut self) {
        let mut rest = Vec::new();
        match self.reader.read_to_end(&mut rest) {
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => {
                panic!("the node keeps the connection open");
            }
            // A reset is a close too.
            _ => {}
        }
    }

    fn line(&mut self) -> io::Result<String> {
        let mut line = String::new();
        if self.reader.read_line(&mut line)? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        Ok(line.trim_end().to_owned())
    }
}

impl RawReply {
    /// A header's value.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    /// The body as JSON.
    ///
    /// # Panics
    /// If it is not JSON.
    #[track_caller]
    #[must_use]
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_else(|error| panic!("not JSON ({error}): {}", self.text))
    }
}
