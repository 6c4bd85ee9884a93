//! Metrics: the series of the process, and the series of models and streams, which are removed
//! together with them.
//!
//! The Prometheus exporter keeps a series for ever. Series labelled with a model or stream are kept
//! in a separate registry, so that clients which create and delete models do not leak series.

use std::collections::{BTreeMap, HashSet};
use std::fmt::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use metrics::{Counter, Gauge, Histogram, Key, KeyName, Metadata, Recorder, SetRecorderError, SharedString, Unit};
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle, PrometheusRecorder};
use metrics_util::registry::{AtomicStorage, Registry};

use crate::metric_help;

/// Histograms of latencies of requests and of commits.
const LATENCIES: [&str; 3] = ["celeris_http_request_seconds", "celeris_forward_seconds", "celeris_log_commit_seconds"];

/// Bucket bounds of the request duration histogram, in seconds: from a cached score to a request
/// timeout.
const REQUEST_SECONDS: [f64; 14] =
    [0.0001, 0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.5, 1.0, 5.0, 30.0];

/// Labels whose values clients choose: model and stream names.
const OWNERS: [&str; 2] = ["model", "stream"];

/// Names of the existing models and streams.
#[derive(Debug, Default)]
pub struct Live {
    /// Names of models and selections.
    pub models: HashSet<String>,
    pub streams: HashSet<String>,
}

impl Live {
    fn has(&self, key: &Key) -> bool {
        key.labels().all(|label| match label.key() {
            "model" => self.models.contains(label.value()),
            "stream" => self.streams.contains(label.value()),
            _ => true,
        })
    }
}

/// The metrics of a process, once installed.
pub struct Series {
    process: PrometheusRecorder,
    rendered: PrometheusHandle,
    owned: Registry<Key, AtomicStorage>,
}

impl Default for Series {
    /// Series to which nothing is recorded unless they are installed.
    fn default() -> Self {
        let builder = LATENCIES.into_iter().fold(PrometheusBuilder::new(), |builder, name| {
            let builder = builder.set_buckets_for_metric(Matcher::Full(name.to_owned()), &REQUEST_SECONDS);
            builder.expect("there are bucket bounds")
        });
        let process = builder.build_recorder();
        Self { rendered: process.handle(), process, owned: Registry::new(AtomicStorage) }
    }
}

impl Series {
    /// New series as the global recorder of the process, which has only one.
    ///
    /// # Errors
    /// If another recorder is installed already.
    pub fn install() -> Result<Arc<Self>, SetRecorderError<Arc<Self>>> {
        let series = Arc::new(Self::default());
        metrics::set_global_recorder(series.clone())?;
        Ok(series)
    }

    /// All series as Prometheus text.
    pub fn render(&self) -> String {
        let mut text = self.rendered.render();
        let counters = self.owned.get_counter_handles().into_iter();
        let counters = counters.map(|(key, value)| (key, value.load(Ordering::Acquire).to_string()));
        family_texts(&mut text, "counter", counters);
        let gauges = self.owned.get_gauge_handles().into_iter();
        let gauges = gauges.map(|(key, value)| (key, f64::from_bits(value.load(Ordering::Acquire)).to_string()));
        family_texts(&mut text, "gauge", gauges);
        metric_help::with_help(&text)
    }

    /// Drains the histograms, and removes the series of deleted models and streams.
    pub fn keep_up(&self, live: &Live) {
        self.rendered.run_upkeep();
        self.owned.retain_counters(|key, _| live.has(key));
        self.owned.retain_gauges(|key, _| live.has(key));
    }
}

/// Writes all series of one kind, grouped by name.
fn family_texts(text: &mut String, kind: &str, series: impl Iterator<Item = (Key, String)>) {
    let mut families: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (key, value) in series {
        // Model and stream names need no escaping, and all other labels are constants.
        let labels: Vec<String> = key.labels().map(|label| format!("{}=\"{}\"", label.key(), label.value())).collect();
        let line = format!("{}{{{}}} {value}\n", key.name(), labels.join(","));
        families.entry(key.name().to_owned()).or_default().push(line);
    }
    for (name, mut lines) in families {
        lines.sort_unstable();
        // Writing to a string does not fail.
        let _ = writeln!(text, "# TYPE {name} {kind}\n{}", lines.concat());
    }
}

fn is_owned(key: &Key) -> bool {
    key.labels().any(|label| OWNERS.contains(&label.key()))
}

impl Recorder for Series {
    fn describe_counter(&self, name: KeyName, unit: Option<Unit>, description: SharedString) {
        self.process.describe_counter(name, unit, description);
    }

    fn describe_gauge(&self, name: KeyName, unit: Option<Unit>, description: SharedString) {
        self.process.describe_gauge(name, unit, description);
    }

    fn describe_histogram(&self, name: KeyName, unit: Option<Unit>, description: SharedString) {
        self.process.describe_histogram(name, unit, description);
    }

    fn register_counter(&self, key: &Key, metadata: &Metadata<'_>) -> Counter {
        if !is_owned(key) {
            return self.process.register_counter(key, metadata);
        }
        let key = key.to_retained();
        self.owned.get_or_create_counter(&key, |counter: &Arc<AtomicU64>| Counter::from_arc(counter.clone()))
    }

    fn register_gauge(&self, key: &Key, metadata: &Metadata<'_>) -> Gauge {
        if !is_owned(key) {
            return self.process.register_gauge(key, metadata);
        }
        let key = key.to_retained();
        self.owned.get_or_create_gauge(&key, |gauge: &Arc<AtomicU64>| Gauge::from_arc(gauge.clone()))
    }

    fn register_histogram(&self, key: &Key, metadata: &Metadata<'_>) -> Histogram {
        if is_owned(key) {
            // No histogram is labelled with a model. One that were would never be removed, so it is
            // ignored.
            return Histogram::noop();
        }
        self.process.register_histogram(key, metadata)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]
    use super::*;

    #[test]
    fn series_of_deleted_models_are_removed() {
        let series = Series::default();
        metrics::with_local_recorder(&series, || {
            metrics::counter!("requests_total").increment(7);
            for model in ["films", "songs"] {
                metrics::counter!("rankings_total", "model" => model).increment(2);
                metrics::gauge!("loss", "model" => model, "over" => "hour").set(0.5);
            }
            metrics::gauge!("items", "stream" => "films").set(3.0);
        });
        let text = series.render();
        for line in ["requests_total 7", r#"rankings_total{model="songs"} 2"#, r#"loss{model="songs",over="hour"} 0.5"#]
        {
            assert!(text.lines().any(|found| found == line), "no {line} in\n{text}");
        }
        assert_eq!(text.matches("# TYPE rankings_total counter\n").count(), 1, "{text}");

        let live = Live { models: HashSet::from(["films".to_owned()]), streams: HashSet::new() };
        series.keep_up(&live);
        let text = series.render();
        assert!(!text.contains("songs") && !text.contains("items"), "{text}");
        for line in ["requests_total 7", r#"rankings_total{model="films"} 2"#, r#"loss{model="films",over="hour"} 0.5"#]
        {
            assert!(text.lines().any(|found| found == line), "no {line} in\n{text}");
        }
        // A model that is created again under the same name starts at zero.
        metrics::with_local_recorder(&series, || metrics::counter!("rankings_total", "model" => "songs").increment(1));
        assert!(series.render().contains(r#"rankings_total{model="songs"} 1"#));
    }
}
