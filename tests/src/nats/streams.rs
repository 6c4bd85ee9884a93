//! What servers say of streams, and which server leads one.

use std::io::{self, BufRead as _, BufReader, Write as _};
use std::net::TcpStream;
use std::time::Duration;

use serde_json::{Value, json};

use super::Nats;

/// A server that is well answers sooner.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(2);

/// A stream, as one server has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StreamCopy {
    pub name: String,
    pub first: u64,
    pub last: u64,
    /// Messages that are missing in between.
    pub deleted: u64,
    /// The server that leads it, as far as this one knows.
    pub leader: Option<usize>,
}

impl Nats {
    /// The streams of a server; none if it does not answer.
    #[must_use]
    pub fn streams(&self, server: usize) -> Vec<StreamCopy> {
        let url = format!("{}/jsz?streams=1&config=0", self.servers[server].monitor_url());
        // A paused server does not answer.
        let request = ureq::get(&url).config().timeout_global(Some(ANSWER_TIMEOUT)).build();
        let answer = request.call().and_then(|mut reply| reply.body_mut().read_to_string());
        let answer: Value = answer.ok().and_then(|text| serde_json::from_str(&text).ok()).unwrap_or_default();
        let accounts = answer["account_details"].as_array().into_iter().flatten();
        accounts.filter_map(|account| account["stream_detail"].as_array()).flatten().filter_map(stream).collect()
    }

    /// The server that leads a stream, by its own account; `None` while there is none.
    #[must_use]
    pub fn leader(&self, name: &str) -> Option<usize> {
        let leads = |server: &usize| {
            let streams = self.streams(*server);
            streams.iter().any(|stream| stream.name == name && stream.leader == Some(*server))
        };
        (0..self.len()).filter(|server| self.runs(*server)).find(leads)
    }

    /// Asks that this server leads a stream.
    ///
    /// # Errors
    /// If it does not take the request.
    pub fn step_to(&self, name: &str, server: usize) -> io::Result<()> {
        let body = json!({"placement": {"preferred": format!("n{server}")}}).to_string();
        let to = &self.servers[server];
        let mut connection = TcpStream::connect((to.host.address(), to.port))?;
        connection.set_read_timeout(Some(ANSWER_TIMEOUT))?;
        // The protocol is lines of text.
        write!(
            connection,
            "CONNECT {{\"verbose\":false}}\r\nSUB answer 1\r\n\
             PUB $JS.API.STREAM.LEADER.STEPDOWN.{name} answer {}\r\n{body}\r\n",
            body.len()
        )?;
        let mut lines = BufReader::new(connection).lines().map_while(Result::ok);
        let answer = lines.find(|line| line.starts_with('{')).unwrap_or_default();
        if answer.contains("\"success\":true") { Ok(()) } else { Err(io::Error::other(answer)) }
    }
}

fn stream(detail: &Value) -> Option<StreamCopy> {
    let state = &detail["state"];
    Some(StreamCopy {
        name: detail["name"].as_str()?.to_owned(),
        first: state["first_seq"].as_u64()?,
        last: state["last_seq"].as_u64()?,
        deleted: state["num_deleted"].as_u64().unwrap_or(0),
        leader: detail["cluster"]["leader"].as_str().and_then(|name| name.strip_prefix('n')?.parse().ok()),
    })
}
