//! The configuration as its sources give it together.

use std::path::Path;
use std::{env, fmt, fs};

use celeris_model::address::without_logins;
use serde::Deserialize;
use toml::{Table, Value};

use super::{Config, Ingest, otel_variables};

/// Prefix of the environment variables, and the separator between section and key in their names.
const ENV_PREFIX: &str = "CELERIS_";
const ENV_SEPARATOR: &str = "__";

/// Reads the configuration from the file and the environment. `listen` is the value of the command
/// line flag.
///
/// # Errors
/// A message with the name of the invalid key and its source.
pub fn load(file: Option<&Path>, listen: Option<&str>) -> Result<Config, String> {
    let variables = env::vars_os();
    load_from(
        file,
        variables.filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?))),
        listen,
    )
}

/// Like [`load`], with these environment variables instead of those of the process.
///
/// # Errors
/// As [`load`].
pub fn load_from(
    file: Option<&Path>,
    variables: impl IntoIterator<Item = (String, String)>,
    listen: Option<&str>,
) -> Result<Config, String> {
    // A message may quote a line or a value with a password in it.
    checked(file, variables, listen).map_err(|problem| without_logins(&problem))
}

fn checked(
    file: Option<&Path>,
    variables: impl IntoIterator<Item = (String, String)>,
    listen: Option<&str>,
) -> Result<Config, String> {
    let mut keys = file.map(of_file).transpose()?.unwrap_or_default();
    let variables: Vec<(String, String)> = variables.into_iter().collect();
    merge(&mut keys, otel_variables::keys(&variables)?);
    for (name, value) in variables {
        // Only names with a section are configuration; variables of other programs may share the
        // prefix.
        if let Some(key) = name.strip_prefix(ENV_PREFIX).filter(|key| key.contains(ENV_SEPARATOR)) {
            let variable = of_variable(key, &value);
            check(&variable).map_err(|error| format!("environment variable {name}: {error}"))?;
            merge(&mut keys, variable);
        }
    }
    let mut config = check(&keys)?;
    if let Some(listen) = listen {
        listen.clone_into(&mut config.server.listen);
    }
    config.server.check()?;
    config.auth.check()?;
    config.limits.check()?;
    config.decisions.check()?;
    config.personalizer.check()?;
    config.training.options()?;
    Ingest::check_all(&config.ingest)?;
    config.cluster.check(&config.server)?;
    config.tracing.check()?;
    Ok(config)
}

fn check(keys: &Table) -> Result<Config, String> {
    Config::deserialize(keys.clone()).map_err(|error| error.to_string())
}

/// The keys of a TOML file. It is deserialized as a [`Config`] first, because those errors include
/// the line.
fn of_file(file: &Path) -> Result<Table, String> {
    let in_file = |error: &dyn fmt::Display| format!("{}: {error}", file.display());
    let text = fs::read_to_string(file).map_err(|error| in_file(&error))?;
    let in_line = |error: toml::de::Error| in_file(&located(&text, &error));
    toml::from_str::<Config>(&text).map_err(in_line)?;
    text.parse().map_err(in_line)
}

/// An error with its place and its key, without the line itself, which may have a password in it.
fn located(text: &str, error: &toml::de::Error) -> String {
    let problem = error.message();
    let Some((before, after)) = error.span().and_then(|span| text.split_at_checked(span.start)) else {
        return problem.to_owned();
    };
    let number = before.matches('\n').count() + 1;
    let begun = before.rsplit('\n').next().unwrap_or_default();
    let line = format!("{begun}{}", after.lines().next().unwrap_or_default());
    let is_of_key = |c: char| c.is_ascii_alphanumeric() || "_-.".contains(c);
    match line.split_once('=').map(|(key, _)| key.trim()) {
        Some(key) if !key.is_empty() && key.chars().all(is_of_key) => format!("line {number}, {key}: {problem}"),
        _ => format!("line {number}: {problem}"),
    }
}

/// The key of one environment variable, whose name has no prefix here. A value that is not TOML is
/// read as a string.
fn of_variable(name: &str, value: &str) -> Table {
    let parsed = format!("value = {value}").parse::<Table>().ok().filter(|table| table.len() == 1);
    let value = parsed.and_then(|mut table| table.remove("value")).unwrap_or_else(|| Value::String(value.to_owned()));
    let name = name.to_lowercase();
    let (outer, key) = name.rsplit_once(ENV_SEPARATOR).unwrap_or(("", &name));
    let innermost = Table::from_iter([(key.to_owned(), value)]);
    outer.rsplit(ENV_SEPARATOR).fold(innermost, |inner, key| Table::from_iter([(key.to_owned(), Value::Table(inner))]))
}

/// Sets the keys of `upper` in `lower`, table by table.
fn merge(lower: &mut Table, upper: Table) {
    for (key, value) in upper {
        match (lower.get_mut(&key), value) {
            (Some(Value::Table(lower)), Value::Table(upper)) => merge(lower, upper),
            (_, value) => drop(lower.insert(key, value)),
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a panic is how a test fails")]
mod tests {
    use std::time::Duration;

    use bytesize::ByteSize;

    use super::*;

    #[test]
    fn environment_variables_override_the_file() {
        let mut keys: Table = "[limits]\nmodels = 7\nbody = '1 MiB'\n[training.limits]\nprocesses = 9".parse().unwrap();
        for (name, value) in [
            ("LIMITS__BODY", "2MiB"),
            ("LIMITS__REQUESTS", "12"),
            ("SERVER__LISTEN", "[::1]:7117"),
            ("SERVER__HOSTS", r#"["a.example", "b.example"]"#),
            ("SEALING__ENABLED", "false"),
            ("TRAINING__LIMITS__TIME", "1h"),
        ] {
            merge(&mut keys, of_variable(name, value));
        }
        let config = check(&keys).unwrap();
        assert_eq!((config.limits.body, config.limits.models, config.limits.requests), (ByteSize::mib(2), 7, 12));
        assert_eq!(config.server.listen, "[::1]:7117");
        assert_eq!(config.server.hosts, ["a.example", "b.example"]);
        assert!(!config.sealing.enabled);
        assert_eq!((config.training.limits.processes, config.training.limits.time), (9, Duration::from_secs(3600)));
    }
}
