//! Recommendations over HTTP, from a table of a million items.

use std::time::Instant;

use serde_json::json;

use super::world::{Norms, World};
use super::{DIM, ITEMS, K};
use crate::Settings;
use crate::load::{self, Sender, ask, connect};
use crate::ndjson::Lines;
use crate::process::{MODEL, Server, prepare_table};
use crate::report::Report;
use crate::stopwatch::Durations;
use celeris_cli::Failure;
use celeris_cli::estimate::warm::Ids;

/// Users who are requested in turn, and their observations.
const USERS: usize = 64;
const HISTORY: usize = 50;

/// Users with many observations, and how many; fewer in a quick run.
const SEERS: usize = 4;
const SEEN: [usize; 2] = [5_000, 50];

/// Requests of each kind, after as many uncounted ones.
const REQUESTS: [usize; 2] = [500, 20];

/// Adds the cases `http/…`.
///
/// # Errors
/// If the node fails.
pub fn run(report: &mut Report, settings: &Settings) -> Result<(), Failure> {
    eprintln!("  recommending over HTTP …");
    let dir = tempfile::tempdir().map_err(Failure::other)?;
    let theta = World::new(Norms::Spread, settings.pick(ITEMS[0], ITEMS[1]), DIM, 0)?.into_theta()?;
    prepare_table(dir.path(), &theta)?;
    let node = Server::node(dir.path())?;
    let seen = settings.pick(SEEN[0], SEEN[1]);
    let times = settings.pick(REQUESTS[0], REQUESTS[1]);
    let [mut plain, mut with, mut without] = load::client()?.block_on(async {
        Lines::of_users(theta.items(), 0..USERS, HISTORY, Ids::None, 62)?.send(&node).await?;
        Lines::of_users(theta.items(), USERS..USERS + SEERS, seen, Ids::None, 63)?.send(&node).await?;
        let mut sender = connect(node.address()).await?;
        let [mut plain, mut with, mut without] = [(); 3].map(|()| Durations::default());
        for turn in 0..2 * times {
            let (user, seer) = (turn % USERS, USERS + turn % SEERS);
            let taken = [
                recommend(&mut sender, user, true).await?,
                recommend(&mut sender, seer, true).await?,
                recommend(&mut sender, seer, false).await?,
            ];
            if turn >= times {
                [&mut plain, &mut with, &mut without].into_iter().zip(taken).for_each(|(all, one)| all.add(one));
            }
        }
        Ok::<_, Failure>([plain, with, without])
    })?;
    node.stop()?;
    let case = |what: &str| format!("{what}/n={}/d={DIM}", ITEMS[0]);
    report.single(case("http"), "ms", Some(super::millis(&mut plain)));
    report.compare(case("http/exclude_seen=5000"), "ms", super::millis(&mut with), super::millis(&mut without));
    Ok(())
}

/// The duration of a recommendation, from sending the request to reading the response.
async fn recommend(sender: &mut Sender, user: usize, exclude_seen: bool) -> Result<std::time::Duration, Failure> {
    let body = json!({"user": format!("user-{user}"), "k": K, "policy": "greedy", "exclude_seen": exclude_seen});
    let asked = Instant::now();
    ask(sender, &format!("/v1/models/{MODEL}/recommend"), body.to_string().into()).await?;
    Ok(asked.elapsed())
}
