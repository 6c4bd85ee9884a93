//! The section `[tracing]`.

use std::path::PathBuf;
use std::time::Duration;

use axum::http::Uri;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Most spans that may wait to be sent; each takes about a kilobyte.
const QUEUE_MAX: usize = 1 << 20;

/// Longest time that a batch may take, and between two batches.
const TIMES_MAX: Duration = Duration::from_secs(300);

/// Traces of requests and jobs (OpenTelemetry), if there is a collector to send them to.
///
/// The variables of the environment that OpenTelemetry defines are read too: `OTEL_EXPORTER_OTLP_ENDPOINT`,
/// `OTEL_SERVICE_NAME`, `OTEL_TRACES_SAMPLER_ARG` and others set the keys here.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Tracing {
    /// Where a collector takes spans by OTLP over HTTP, such as `http://127.0.0.1:4318/v1/traces`. Without it, nothing is
    /// recorded.
    #[schema(value_type = Option<String>)]
    pub endpoint: Option<String>,
    /// The share of requests that is recorded, from 0 to 1, of those without the header `traceparent`; one that has it says by
    /// itself whether it is recorded.
    pub sample: f64,
    /// The name of the service in traces.
    pub service: String,
    /// A file with headers for the collector, such as a key: a line `NAME: VALUE` for each.
    #[schema(value_type = Option<String>)]
    pub headers_file: Option<PathBuf>,
    /// The authorities of the certificate of the collector, in PEM, in place of those of the web.
    #[schema(value_type = Option<String>)]
    pub ca_file: Option<PathBuf>,
    /// How long the sending of a batch may take, repetitions included; then its spans are dropped.
    #[serde(with = "super::times")]
    #[schema(value_type = String)]
    pub timeout: Duration,
    /// How long a span waits for others at most, to be sent with them.
    #[serde(with = "super::times")]
    #[schema(value_type = String)]
    pub interval: Duration,
    /// Maximum number of spans that wait to be sent; further ones are dropped, and counted.
    pub queue: usize,
    /// Names users and the subjects of tokens in spans, so that the collector has personal data.
    pub users: bool,
}

impl Default for Tracing {
    fn default() -> Self {
        Self {
            endpoint: None,
            sample: 0.01,
            service: "celeris".to_owned(),
            headers_file: None,
            ca_file: None,
            timeout: Duration::from_secs(10),
            interval: Duration::from_secs(1),
            queue: 4096,
            users: false,
        }
    }
}

impl Tracing {
    pub(super) fn check(&self) -> Result<(), String> {
        if let Some(endpoint) = self.endpoint.as_ref().filter(|endpoint| !is_endpoint(endpoint)) {
            return Err(format!(
                "tracing.endpoint: {endpoint:?} is no address of a collector; give the URL with its path, such as \
                 \"http://127.0.0.1:4318/v1/traces\", and credentials by tracing.headers_file"
            ));
        }
        if !(0.0..=1.0).contains(&self.sample) {
            return Err(format!("tracing.sample: must be from 0 to 1, got {}", self.sample));
        }
        if self.service.is_empty() || self.service.len() > 255 {
            return Err("tracing.service: must be a name of 1 to 255 bytes".to_owned());
        }
        if !(1..=QUEUE_MAX).contains(&self.queue) {
            return Err(format!("tracing.queue: must be from 1 to {QUEUE_MAX}, got {}", self.queue));
        }
        let times = [("timeout", self.timeout), ("interval", self.interval)];
        if let Some((name, _)) = times.iter().find(|(_, time)| time.is_zero() || *time > TIMES_MAX) {
            return Err(format!("tracing.{name}: must be above 0 and at most 5m"));
        }
        Ok(())
    }
}

/// Whether spans can be posted to this URL. One with credentials would be in logs.
fn is_endpoint(url: &str) -> bool {
    let Ok(url) = url.parse::<Uri>() else { return false };
    let is_web = matches!(url.scheme_str(), Some("http" | "https"));
    let has_host = url.host().is_some_and(|host| !host.is_empty());
    let has_credentials = url.authority().is_some_and(|authority| authority.as_str().contains('@'));
    is_web && has_host && !has_credentials && url.path().len() > 1
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a panic is how a test fails")]
mod tests {
    use super::*;

    #[test]
    fn a_collector_is_a_url_with_a_path_and_without_credentials() {
        let check = |endpoint: &str| Tracing { endpoint: Some(endpoint.to_owned()), ..Tracing::default() }.check();
        for url in ["http://127.0.0.1:4318/v1/traces", "https://otel.example/custom", "http://[::1]:4318/v1/traces"] {
            check(url).unwrap();
        }
        let refused = [
            "",
            "127.0.0.1:4318",
            "http://127.0.0.1:4318",
            "http://127.0.0.1:4318/",
            "grpc://127.0.0.1:4317/v1/traces",
            "http://user:password@127.0.0.1:4318/v1/traces",
            "http:///v1/traces",
            "http://a b/v1/traces",
        ];
        for url in refused {
            assert!(check(url).unwrap_err().starts_with("tracing.endpoint: "), "{url}");
        }
    }

    #[test]
    fn numbers_out_of_range_are_refused_with_their_names() {
        let refused = |change: fn(&mut Tracing)| {
            let mut tracing = Tracing::default();
            change(&mut tracing);
            let problem = tracing.check().unwrap_err();
            problem.split(':').next().unwrap().to_owned()
        };
        assert_eq!(refused(|tracing| tracing.sample = 1.5), "tracing.sample");
        assert_eq!(refused(|tracing| tracing.sample = f64::NAN), "tracing.sample");
        assert_eq!(refused(|tracing| tracing.service.clear()), "tracing.service");
        assert_eq!(refused(|tracing| tracing.queue = 0), "tracing.queue");
        assert_eq!(refused(|tracing| tracing.queue = usize::MAX), "tracing.queue");
        assert_eq!(refused(|tracing| tracing.timeout = Duration::ZERO), "tracing.timeout");
        assert_eq!(refused(|tracing| tracing.interval = Duration::MAX), "tracing.interval");
    }
}
