//! Paths and URLs, and the environment variables of each store.
//!
//! | place | variables |
//! |---|---|
//! | `s3://BUCKET/…` | `AWS_ACCESS_KEY_ID`, `AWS_SECRET_ACCESS_KEY`, `AWS_SESSION_TOKEN`, `AWS_REGION`, `AWS_ENDPOINT`, `AWS_ALLOW_HTTP`, … |
//! | `gs://BUCKET/…` | `GOOGLE_SERVICE_ACCOUNT`, `GOOGLE_SERVICE_ACCOUNT_KEY`, `GOOGLE_APPLICATION_CREDENTIALS`, … |
//! | `az://CONTAINER/…`, `abfss://CONTAINER@ACCOUNT.dfs.core.windows.net/…` | `AZURE_STORAGE_ACCOUNT_NAME`, `AZURE_STORAGE_ACCOUNT_KEY`, … |

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use object_store::aws::{AmazonS3Builder, AmazonS3ConfigKey};
use object_store::azure::{AzureConfigKey, MicrosoftAzureBuilder};
use object_store::gcp::{GoogleCloudStorageBuilder, GoogleConfigKey};
use object_store::http::HttpBuilder;
use object_store::path::Path;
use object_store::{ClientConfigKey, ObjectStore, RetryConfig};
use reqwest::Url;

use crate::runtime::handle;
use crate::store::StorePath;
use crate::{Location, LocationError, Place};

/// Between two packets of an answer.
const SILENCE_MAX: &str = "30s";

/// For the whole of an answer: large files are one.
const REQUEST_TIME_MAX: &str = "1h";

/// A request is repeated that often and that long while a store is busy or cannot be reached.
const RETRIES_MAX: usize = 6;
const RETRY_TIME_MAX: Duration = Duration::from_secs(60);

pub(crate) fn parse(text: &str) -> Result<Location, LocationError> {
    parse_with(text, &[])
}

/// With settings of S3 that take the place of those of the environment.
pub(crate) fn parse_with(text: &str, of_s3: &[(AmazonS3ConfigKey, String)]) -> Result<Location, LocationError> {
    if text.is_empty() {
        return Err(LocationError::invalid("location", "it is empty; name a path or a URL"));
    }
    if text.contains('\0') {
        return Err(LocationError::invalid("location", "it has a zero byte"));
    }
    let Some((scheme, _)) = text.split_once("://").filter(|(scheme, _)| is_scheme(scheme)) else {
        return Ok(Location::folder(PathBuf::from(text)));
    };
    // Not the text itself, which may have a password.
    let url = Url::parse(text).map_err(|error| LocationError::invalid(&format!("{scheme}://…"), &error))?;
    check(&url)?;
    if url.scheme() == "file" {
        let path = url.to_file_path();
        let path =
            path.map_err(|()| LocationError::invalid(text, "a URL of a file is file:///PATH, on this machine"))?;
        return Ok(Location::folder(path));
    }
    let path = Path::from_url_path(url.path()).map_err(|error| LocationError::invalid(text, &error))?;
    handle().map_err(|error| LocationError::invalid(text, &error))?;
    let store = store_of(&url, of_s3).map_err(|problem| LocationError::invalid(text, &problem))?;
    let name = text.trim_end_matches('/').to_owned();
    Ok(Location { place: Place::Store(StorePath { store, path }), name })
}

fn is_scheme(text: &str) -> bool {
    let is_of_scheme = |byte: u8| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte);
    text.as_bytes().first().is_some_and(u8::is_ascii_alphabetic) && text.bytes().all(is_of_scheme)
}

/// Names are shown and logged, so they have no secrets; and nothing of them is left out silently.
fn check(url: &Url) -> Result<(), LocationError> {
    let shown = format!("{}://{}{}", url.scheme(), url.host_str().unwrap_or_default(), url.path());
    let has_container = matches!(url.scheme(), "abfs" | "abfss");
    if url.password().is_some() || (!url.username().is_empty() && !has_container) {
        return Err(LocationError::invalid(&shown, "credentials belong in environment variables, not in the URL"));
    }
    if url.query().is_some() || url.fragment().is_some() {
        return Err(LocationError::invalid(
            &shown,
            "a URL with `?` or `#` is not supported; write them as %3F and %23",
        ));
    }
    Ok(())
}

fn store_of(url: &Url, of_s3: &[(AmazonS3ConfigKey, String)]) -> Result<Arc<dyn ObjectStore>, String> {
    let retry = RetryConfig { max_retries: RETRIES_MAX, retry_timeout: RETRY_TIME_MAX, ..RetryConfig::default() };
    let built: Result<Arc<dyn ObjectStore>, object_store::Error> = match url.scheme() {
        "s3" | "s3a" => with_bounds(
            of_s3.iter().fold(AmazonS3Builder::from_env(), |builder, (key, value)| builder.with_config(*key, value)),
            |builder, key, value| builder.with_config(AmazonS3ConfigKey::Client(key), value),
        )
        .with_url(url.as_str())
        .with_retry(retry)
        .build()
        .map(|store| Arc::new(store) as _),
        "gs" => with_bounds(GoogleCloudStorageBuilder::from_env(), |builder, key, value| {
            builder.with_config(GoogleConfigKey::Client(key), value)
        })
        .with_url(url.as_str())
        .with_retry(retry)
        .build()
        .map(|store| Arc::new(store) as _),
        "az" | "azure" | "abfs" | "abfss" => with_bounds(MicrosoftAzureBuilder::from_env(), |builder, key, value| {
            builder.with_config(AzureConfigKey::Client(key), value)
        })
        .with_url(url.as_str())
        .with_retry(retry)
        .build()
        .map(|store| Arc::new(store) as _),
        scheme @ ("http" | "https") => with_bounds(HttpBuilder::new(), HttpBuilder::with_config)
            .with_config(ClientConfigKey::AllowHttp, if scheme == "http" { "true" } else { "false" })
            .with_url(url.origin().ascii_serialization())
            .with_retry(retry)
            .build()
            .map(|store| Arc::new(store) as _),
        scheme => {
            return Err(format!(
                "no store has the scheme {scheme}; expected a path, file, s3, gs, az, abfss, http or https"
            ));
        }
    };
    built.map_err(|error| error.to_string())
}

/// A builder with the bounds of a request, which the library has too tight for long transfers.
fn with_bounds<B>(builder: B, with: impl Fn(B, ClientConfigKey, &'static str) -> B) -> B {
    let builder = with(builder, ClientConfigKey::ReadTimeout, SILENCE_MAX);
    with(builder, ClientConfigKey::Timeout, REQUEST_TIME_MAX)
}
