//! Policies in requests and configuration.

use celeris_bandits::{EpsilonGreedy, LinUcb, PolicySpec, PoolShare};
use serde::Deserialize;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Section {
    #[serde(default)]
    policy: PolicySpec,
    #[serde(default)]
    pool_share: PoolShare,
}

fn json(text: &str) -> Result<PolicySpec, String> {
    serde_json::from_str(text).map_err(|error| error.to_string())
}

fn configured(text: &str) -> Result<Section, String> {
    toml::from_str(text).map_err(|error| error.to_string())
}

fn epsilon_greedy(epsilon: f64) -> PolicySpec {
    PolicySpec::EpsilonGreedy(EpsilonGreedy::new(epsilon).unwrap())
}

#[test]
fn specs_deserialize_from_names_or_objects_and_serialize_to_objects() {
    for name in PolicySpec::NAMES {
        let spec = json(&format!("{name:?}")).unwrap();
        assert_eq!(spec.name(), name);
        let written = serde_json::to_string(&spec).unwrap();
        assert_eq!(json(&written).unwrap(), spec, "{written}");
    }
    assert_eq!(json(r#"{"name": "epsilon_greedy", "epsilon": 0.1}"#).unwrap(), epsilon_greedy(0.1));
    assert_eq!(json(r#"{"epsilon": 1, "name": "epsilon_greedy"}"#).unwrap(), epsilon_greedy(1.0));
    assert_eq!(json(r#"{"name": "lin_ucb"}"#).unwrap(), PolicySpec::LinUcb(LinUcb::new(1.0).unwrap()));
    assert_eq!(serde_json::to_string(&epsilon_greedy(0.1)).unwrap(), r#"{"name":"epsilon_greedy","epsilon":0.1}"#);
    assert_eq!(serde_json::to_string(&json(r#""greedy""#).unwrap()).unwrap(), r#"{"name":"greedy"}"#);
}

#[test]
fn configuration_reads_the_same_policies() {
    assert_eq!(configured("policy = 'lin_ucb'").unwrap().policy, PolicySpec::LinUcb(LinUcb::new(1.0).unwrap()));
    assert_eq!(configured("policy = { name = 'epsilon_greedy', epsilon = 0 }").unwrap().policy, epsilon_greedy(0.0));
    assert_eq!(configured("[policy]\nname = 'epsilon_greedy'\nepsilon = 0.25").unwrap().policy, epsilon_greedy(0.25));
    let section = configured("pool_share = 0.02").unwrap();
    assert_eq!(section.policy, epsilon_greedy(0.05));
    assert_eq!(f64::from(section.pool_share), 0.02);
    assert_eq!(f64::from(configured("").unwrap().pool_share), 0.01);
}

#[test]
fn errors_name_the_mistake() {
    for (text, says) in [
        (
            r#""greedyy""#,
            r#"unknown policy "greedyy"; choose one of greedy, epsilon_greedy, softmax, squarecb, lin_ucb, regcb, thompson"#,
        ),
        (r#"{"name": "soft"}"#, r#"unknown policy "soft""#),
        (
            r#"{"name": "epsilon_greedy", "eps": 0.1}"#,
            r#"policy epsilon_greedy has no parameter "eps"; it takes epsilon"#,
        ),
        (r#"{"name": "greedy", "epsilon": 0.1}"#, r#"policy greedy has no parameter "epsilon"; it takes none"#),
        (r#"{"name": "epsilon_greedy", "epsilon": 1.5}"#, "epsilon must be from 0 to 1, got 1.5"),
        (r#"{"name": "epsilon_greedy", "epsilon": -1}"#, "epsilon must be from 0 to 1, got -1"),
        (r#"{"name": "lin_ucb", "alpha": 101}"#, "alpha must be from 0 to 100, got 101"),
        (r#"{"name": "softmax", "lambda": -1}"#, "lambda must be from 0 to 1000000, got -1"),
        (r#"{"name": "squarecb", "gamma_exponent": 1.5}"#, "gamma_exponent must be from 0 to 1, got 1.5"),
        (
            r#"{"name": "squarecb", "gamma": 1}"#,
            r#"policy squarecb has no parameter "gamma"; it takes gamma_scale, gamma_exponent"#,
        ),
        (r#"{"name": "regcb", "mellowness": 1e4}"#, "mellowness must be from 0 to 1000, got 10000"),
        (r#"{"name": "thompson", "alpha": 101}"#, "alpha must be from 0 to 100, got 101"),
        (r#"{"name": "lin_ucb", "alpha": "wide"}"#, r#"expected a number as the policy parameter "alpha""#),
        (r#"{"name": "lin_ucb", "alpha": null}"#, r#"expected a number as the policy parameter "alpha""#),
        (r#"{"name": "lin_ucb", "alpha": 1, "alpha": 2}"#, r#"duplicate policy parameter "alpha""#),
        (r#"{"name": "greedy", "name": "greedy"}"#, "duplicate field `name`"),
        (r#"{"name": 3}"#, "expected a string as the `name` of the policy"),
        (r#"{"epsilon": 0.1}"#, "missing field `name`"),
        ("7", "expected a policy: its name, or an object of `name` and parameters"),
    ] {
        let error = json(text).unwrap_err();
        assert!(error.contains(says), "{text} says {error}");
    }
    for (text, says) in [
        ("policy = { name = 'lin_ucb', alpha = nan }", "alpha must be from 0 to 100, got NaN"),
        ("policy = { name = 'lin_ucb', alpha = inf }", "alpha must be from 0 to 100, got inf"),
        ("policy = { name = 'lin_ucb', alpha = 'x' }", r#"expected a number as the policy parameter "alpha""#),
        ("policy = 'soft'", r#"unknown policy "soft""#),
        ("pool_share = 2", "pool_share must be from 0 to 1, got 2"),
    ] {
        let error = configured(text).unwrap_err();
        assert!(error.contains(says), "{text} says {error}");
    }
}
