//! Variables of the environment that OpenTelemetry defines for all programs, as keys of `[tracing]`.
//!
//! Those of headers and resources are read where spans are sent: they may be secret, and `celeris config` prints the keys.

use toml::{Table, Value};

/// The path of traces behind the address of a collector.
const TRACES: &str = "/v1/traces";

/// What `OTEL_EXPORTER_OTLP_PROTOCOL` may be.
const PROTOCOL: &str = "http/protobuf";

/// The keys that the variables set.
///
/// # Errors
/// A message with the name of the variable whose value cannot be used.
pub(super) fn keys(variables: &[(String, String)]) -> Result<Table, String> {
    let given = Given(variables);
    if given.is("OTEL_SDK_DISABLED", "true") || given.is("OTEL_TRACES_EXPORTER", "none") {
        return Ok(Table::new());
    }
    let mut tracing = Table::new();
    if let Some(endpoint) = given.endpoint()? {
        tracing.insert("endpoint".to_owned(), Value::String(endpoint));
    }
    if let Some(name) = given.text("OTEL_SERVICE_NAME") {
        tracing.insert("service".to_owned(), Value::String(name.to_owned()));
    }
    if let Some(share) = given.share()? {
        tracing.insert("sample".to_owned(), Value::Float(share));
    }
    for (key, names) in [
        ("timeout", &["OTEL_EXPORTER_OTLP_TRACES_TIMEOUT", "OTEL_EXPORTER_OTLP_TIMEOUT"][..]),
        ("interval", &["OTEL_BSP_SCHEDULE_DELAY"]),
    ] {
        if let Some(milliseconds) = given.number(names)? {
            tracing.insert(key.to_owned(), Value::String(format!("{milliseconds}ms")));
        }
    }
    if let Some(spans) = given.number(&["OTEL_BSP_MAX_QUEUE_SIZE"])? {
        tracing.insert("queue".to_owned(), Value::Integer(spans));
    }
    if tracing.is_empty() {
        return Ok(tracing);
    }
    Ok(Table::from_iter([("tracing".to_owned(), Value::Table(tracing))]))
}

/// The variables that are given.
struct Given<'a>(&'a [(String, String)]);

impl<'a> Given<'a> {
    /// The value of a variable; an empty one counts as not given.
    fn text(&self, name: &str) -> Option<&'a str> {
        let found = self.0.iter().rev().find(|(given, _)| given == name);
        found.map(|(_, value)| value.trim()).filter(|value| !value.is_empty())
    }

    fn is(&self, name: &str, value: &str) -> bool {
        self.text(name).is_some_and(|given| given.eq_ignore_ascii_case(value))
    }

    fn endpoint(&self) -> Result<Option<String>, String> {
        let of_traces = self.text("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT").map(str::to_owned);
        let of_all = || Some(format!("{}{TRACES}", self.text("OTEL_EXPORTER_OTLP_ENDPOINT")?.trim_end_matches('/')));
        let Some(endpoint) = of_traces.or_else(of_all) else { return Ok(None) };
        for name in ["OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL"] {
            match self.text(name) {
                Some(PROTOCOL) => break,
                Some(other) => {
                    return Err(format!(
                        "environment variable {name}: {other:?} is not spoken here; set it to {PROTOCOL:?}"
                    ));
                }
                None => {}
            }
        }
        Ok(Some(endpoint))
    }

    fn share(&self) -> Result<Option<f64>, String> {
        let (name, argument) = ("OTEL_TRACES_SAMPLER", "OTEL_TRACES_SAMPLER_ARG");
        let Some(sampler) = self.text(name) else { return Ok(None) };
        match sampler.strip_prefix("parentbased_").unwrap_or(sampler) {
            "always_on" => Ok(Some(1.0)),
            "always_off" => Ok(Some(0.0)),
            "traceidratio" => match self.text(argument).map(str::parse) {
                None => Ok(Some(1.0)),
                Some(Ok(share)) => Ok(Some(share)),
                Some(Err(_)) => Err(format!("environment variable {argument}: must be a number from 0 to 1")),
            },
            _ => Err(format!(
                "environment variable {name}: {sampler:?} is not known here; use parentbased_traceidratio, \
                 parentbased_always_on or parentbased_always_off"
            )),
        }
    }

    fn number(&self, names: &[&str]) -> Result<Option<i64>, String> {
        let Some((name, text)) = names.iter().find_map(|name| Some((name, self.text(name)?))) else { return Ok(None) };
        let number = text.parse().ok().filter(|number| *number >= 0);
        number.map(Some).ok_or_else(|| format!("environment variable {name}: must be a number, got {text:?}"))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a panic is how a test fails")]
mod tests {
    use crate::config::{Tracing, load_from};

    fn tracing(variables: &[(&str, &str)]) -> Result<Tracing, String> {
        let variables = variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        Ok(load_from(None, variables, None)?.tracing)
    }

    #[test]
    fn the_variables_of_opentelemetry_configure_traces() {
        let all = [
            ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://collector:4318/"),
            ("OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf"),
            ("OTEL_SERVICE_NAME", "films"),
            ("OTEL_TRACES_SAMPLER", "parentbased_traceidratio"),
            ("OTEL_TRACES_SAMPLER_ARG", "0.25"),
            ("OTEL_EXPORTER_OTLP_TIMEOUT", "1500"),
            ("OTEL_BSP_SCHEDULE_DELAY", "250"),
            ("OTEL_BSP_MAX_QUEUE_SIZE", "100"),
        ];
        let read = tracing(&all).unwrap();
        assert_eq!(read.endpoint.as_deref(), Some("http://collector:4318/v1/traces"));
        assert_eq!((&*read.service, read.sample, read.queue), ("films", 0.25, 100));
        assert_eq!((read.timeout.as_millis(), read.interval.as_millis()), (1500, 250));
        // Those of this program come before them, and those of traces before those of everything.
        let more =
            [("CELERIS_TRACING__SERVICE", "books"), ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "http://other:1/custom")];
        let read = tracing(&[&all[..], &more].concat()).unwrap();
        assert_eq!((read.endpoint.as_deref(), &*read.service), (Some("http://other:1/custom"), "books"));
    }

    #[test]
    fn traces_are_off_unless_a_collector_is_named_and_can_be_turned_off() {
        let endpoint = ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://collector:4318");
        assert_eq!(tracing(&[]).unwrap(), Tracing::default());
        assert_eq!(tracing(&[("OTEL_EXPORTER_OTLP_ENDPOINT", " ")]).unwrap().endpoint, None);
        for off in [("OTEL_SDK_DISABLED", "TRUE"), ("OTEL_TRACES_EXPORTER", "none")] {
            assert_eq!(tracing(&[endpoint, off]).unwrap().endpoint, None);
        }
    }

    #[test]
    fn what_cannot_be_used_is_refused_with_the_name_of_the_variable() {
        let endpoint = ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://collector:4317");
        for (name, value) in [
            ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc"),
            ("OTEL_TRACES_SAMPLER", "jaeger_remote"),
            ("OTEL_EXPORTER_OTLP_TIMEOUT", "10s"),
            ("OTEL_BSP_MAX_QUEUE_SIZE", "-1"),
        ] {
            let problem = tracing(&[endpoint, (name, value)]).unwrap_err();
            assert!(problem.contains(name), "{problem}");
        }
        let share = [("OTEL_TRACES_SAMPLER", "traceidratio"), ("OTEL_TRACES_SAMPLER_ARG", "half")];
        assert!(tracing(&share).unwrap_err().contains("OTEL_TRACES_SAMPLER_ARG"));
        let nothing = tracing(&[("OTEL_BSP_MAX_QUEUE_SIZE", "0")]).unwrap_err();
        assert!(nothing.contains("tracing.queue"), "{nothing}");
    }
}
