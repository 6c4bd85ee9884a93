//! The files in `deploy/` name what there is.

use std::collections::BTreeSet;

const METRICS: &str = include_str!("../../../docs/reference/metrics.md");
const MONITORING: &str = include_str!("../../../docs/run/monitoring.md");
const ALERTS: &str = include_str!("../../../deploy/prometheus/alerts.yml");
const RECORDING: &str = include_str!("../../../deploy/prometheus/recording.yml");
const DASHBOARD: &str = include_str!("../../../deploy/grafana/celeris.json");

/// The names of metrics in a text. In `level:metric:operation`, the metric is in the middle.
fn metrics(text: &str) -> BTreeSet<&str> {
    let is_name = |character: char| character.is_ascii_alphanumeric() || character == '_';
    let names = text.split(|character| !is_name(character)).filter(|name| name.starts_with("celeris_"));
    let parts = ["_bucket", "_count", "_sum"];
    names.map(|name| parts.iter().find_map(|part| name.strip_suffix(part)).unwrap_or(name)).collect()
}

#[test]
fn rules_and_dashboard_use_metrics_that_there_are() {
    // Rates of requests are recorded under names that are not metrics.
    let recorded =
        ["celeris_http_requests", "celeris_http_failures", "celeris_http_unavailable", "celeris_log_records"];
    let mut checked = 0;
    for text in [ALERTS, RECORDING, DASHBOARD] {
        for name in metrics(text) {
            let row = format!("| `{name}` |");
            let is_known = METRICS.contains(&row) || recorded.contains(&name);
            assert!(is_known, "{name} is not in docs/reference/metrics.md");
            checked += 1;
        }
    }
    assert!(checked > 50, "{checked}");
}

#[test]
fn what_the_alerts_and_the_dashboard_take_from_recording_rules_is_recorded() {
    let recorded: BTreeSet<&str> =
        RECORDING.lines().filter_map(|line| line.trim().strip_prefix("- record: ")).collect();
    assert!(recorded.len() > 5, "{recorded:?}");
    let is_name = |character: char| character.is_ascii_alphanumeric() || "_:".contains(character);
    for text in [ALERTS, DASHBOARD] {
        let names = text.split(|character| !is_name(character)).filter(|name| name.matches(':').count() == 2);
        for name in names.filter(|name| name.contains(":celeris_")) {
            assert!(recorded.contains(name), "{name} is not in recording.yml");
        }
    }
}

#[test]
fn every_alert_says_what_to_do() {
    let alerts: Vec<&str> = ALERTS.lines().filter_map(|line| line.trim().strip_prefix("- alert: ")).collect();
    assert!(alerts.len() > 20, "{alerts:?}");
    for alert in alerts {
        let is_listed = MONITORING.contains(&format!("`{alert}`"));
        assert!(is_listed || alert == "CelerisCertificateExpiresNow", "{alert} is not in docs/run/monitoring.md");
    }
    assert_eq!(ALERTS.matches("- alert: ").count(), ALERTS.matches("labels: {severity: ").count());
    assert_eq!(ALERTS.matches("- alert: ").count(), ALERTS.matches("summary: ").count());
}
