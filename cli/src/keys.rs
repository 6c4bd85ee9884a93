//! `celeris keys`: the API keys of a node.

use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use celeris_api::schema::keys::{Key, Keys};
use celeris_manager::{ApiKeys, Changer, Grant, NewKey, Role};
use celeris_model::{ModelName, StreamName, Timestamp};
use celeris_storage::{Storage, StorageOptions};
use clap::Subcommand;
use serde_json::{Value, json};

use crate::Failure;
use crate::models::{aligned, print};
use crate::node_client::{NodeArgs, NodeClient};

/// Makes, lists and revokes the keys by which a node knows its clients.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Create(Create),
    List(List),
    Revoke(Revoke),
}

/// Makes a key and prints it, this once. With the first one, every request to the node needs a key.
#[derive(Debug, clap::Args)]
struct Create {
    /// A name for people, such as that of the service that is to use it.
    #[arg(long)]
    name: String,
    /// What it may be used for: predict, observe, operate (includes predict), admin (includes all); may be repeated.
    #[arg(long = "role", value_name = "ROLE", required = true)]
    roles: Vec<Role>,
    /// A model or selection that it is for; may be repeated. All, unless models or streams are given.
    #[arg(long = "model", value_name = "NAME")]
    models: Vec<ModelName>,
    /// A stream whose models it is for; may be repeated.
    #[arg(long = "stream", value_name = "NAME")]
    streams: Vec<StreamName>,
    /// After which time it is not valid any more, such as 90d.
    #[arg(long, value_name = "TIME", value_parser = humantime::parse_duration)]
    expires: Option<Duration>,
    /// Requests a second on each node.
    #[arg(long, value_name = "N")]
    requests_per_second: Option<f64>,
    /// Observations a second on each node.
    #[arg(long, value_name = "N")]
    observations_per_second: Option<f64>,
    #[command(flatten)]
    at: At,
}

/// Lists the keys, without their secrets.
#[derive(Debug, clap::Args)]
struct List {
    #[command(flatten)]
    at: At,
    /// Prints the reply of the API.
    #[arg(long)]
    json: bool,
}

/// Revokes a key: no request can use it from now on.
#[derive(Debug, clap::Args)]
struct Revoke {
    /// The id of the key, which follows `celeris_` in it.
    id: String,
    #[command(flatten)]
    at: At,
}

/// Whose keys.
#[derive(Debug, clap::Args)]
struct At {
    #[command(flatten)]
    node: NodeArgs,
    /// The data directory of a node that is stopped, in place of a running one: for the first key of a node, also of one that
    /// was never started, or when the keys were lost.
    #[arg(long, conflicts_with_all = ["url", "key_file"])]
    data_dir: Option<PathBuf>,
}

impl At {
    /// The keys of the stopped node, if one is named. It must have been started before.
    fn stopped(&self) -> Result<Option<(Storage, ApiKeys)>, Failure> {
        if let Some(dir) = self.data_dir.as_ref().filter(|dir| !dir.join("FORMAT").exists()) {
            let dir = dir.display();
            return Err(Failure::bad_input(format!(
                "{dir} is no data directory, so it has no keys; `celeris keys create --role admin --name NAME --data-dir \
                 {dir}` makes it with a first key"
            )));
        }
        self.stopped_or_new()
    }

    /// The same of a node that may not have been started yet: then the data directory is made.
    fn stopped_or_new(&self) -> Result<Option<(Storage, ApiKeys)>, Failure> {
        let Some(dir) = &self.data_dir else { return Ok(None) };
        let storage = Storage::open(dir.clone(), &StorageOptions::default())?;
        Ok(Some((storage.clone(), ApiKeys::of_store(storage)?)))
    }

    fn client(&self) -> NodeClient {
        NodeClient::new(&self.node)
    }
}

pub fn run(args: &Args) -> Result<(), Failure> {
    match &args.command {
        Command::Create(create) => create.run(),
        Command::List(list) => list.run(),
        Command::Revoke(revoke) => revoke.run(),
    }
}

impl Create {
    fn run(&self) -> Result<(), Failure> {
        let expires = self.expires.map(|after| Timestamp::from(SystemTime::now() + after));
        let key = match self.at.stopped_or_new()? {
            Some((storage, keys)) => {
                let grant = Grant {
                    roles: self.roles.iter().copied().collect(),
                    models: self.models.iter().cloned().collect(),
                    streams: self.streams.iter().cloned().collect(),
                    requests_per_second: self.requests_per_second,
                    observations_per_second: self.observations_per_second,
                };
                let made = keys.create(NewKey { name: self.name.clone(), grant, expires }, offline())?;
                storage.close()?;
                made.secret
            }
            None => {
                let body = json!({
                    "name": self.name, "roles": self.roles, "models": self.models, "streams": self.streams,
                    "requests_per_second": self.requests_per_second,
                    "observations_per_second": self.observations_per_second,
                    "expires": expires.map(|time| time.0),
                });
                let reply = self.at.client().post("/v1/keys", &body)?;
                reply["key"].as_str().unwrap_or_default().to_owned()
            }
        };
        eprintln!(
            "this key is shown once; send it as `Authorization: Bearer KEY`, commands read it from CELERIS_API_KEY"
        );
        print(&format!("{key}\n"))
    }
}

impl List {
    fn run(&self) -> Result<(), Failure> {
        let reply = match self.at.stopped()? {
            Some((storage, keys)) => {
                let keys = Keys { keys: keys.list().iter().map(|key| Key::from(&**key)).collect() };
                storage.close()?;
                serde_json::to_value(keys).map_err(Failure::other)?
            }
            None => self.at.client().get("/v1/keys")?,
        };
        print(&if self.json { format!("{reply}\n") } else { table(&reply) })
    }
}

impl Revoke {
    fn run(&self) -> Result<(), Failure> {
        match self.at.stopped()? {
            Some((storage, keys)) => {
                keys.revoke(&self.id, offline())?;
                storage.close()?;
            }
            None => {
                self.at.client().delete(&format!("/v1/keys/{}", self.id))?;
            }
        }
        print(&format!("{} is revoked\n", self.id))
    }
}

/// Who has the data directory may do everything.
fn offline() -> Changer {
    Changer { name: Some("the command line, on the data directory".to_owned()), ..Changer::default() }
}

/// The keys as a table, one line each.
fn table(reply: &Value) -> String {
    let keys = reply["keys"].as_array().map_or(&[][..], Vec::as_slice);
    if keys.is_empty() {
        return "no keys: the node is open to whoever reaches it; make one by `celeris keys create --role admin --name NAME`\n".to_owned();
    }
    let header = ["ID", "NAME", "ROLES", "FOR", "STATE"].map(str::to_owned);
    aligned(&std::iter::once(header).chain(keys.iter().map(row)).collect::<Vec<_>>())
}

fn row(key: &Value) -> [String; 5] {
    let text = |name: &str| key[name].as_str().unwrap_or_default().to_owned();
    let list =
        |name: &str| -> Vec<&str> { key[name].as_array().into_iter().flatten().filter_map(Value::as_str).collect() };
    let bounds = [("model", list("models")), ("stream", list("streams"))];
    let bounds: Vec<String> =
        bounds.iter().flat_map(|(kind, names)| names.iter().map(move |name| format!("{kind} {name}"))).collect();
    let now = Timestamp::from(SystemTime::now()).0;
    let state = match (key["revoked"].as_i64(), key["expires"].as_i64()) {
        (Some(_), _) => "revoked".to_owned(),
        (None, Some(expires)) if expires <= now => "expired".to_owned(),
        (None, Some(expires)) => format!("valid for {} days", (expires - now) / (24 * 3600 * 1000)),
        (None, None) => "valid".to_owned(),
    };
    let bounds = if bounds.is_empty() { "all".to_owned() } else { bounds.join(", ") };
    [text("id"), text("name"), list("roles").join(", "), bounds, state]
}
