//! The client of HTTP by which spans are sent.

use std::fmt;
use std::path::Path;
use std::pin::Pin;
use std::time::Duration;

use celeris_api::tls;
use opentelemetry_http::{Bytes, HttpClient, HttpError, Request, Response};
use ureq::Agent;
use ureq::tls::{RootCerts, TlsConfig};

/// The longest answer of a collector that is read.
const ANSWER_BYTES_MAX: u64 = 1 << 20;

/// A client that blocks its thread: spans are sent by a thread of their own.
pub struct Client(Agent);

impl Client {
    /// A client whose requests take at most `timeout`.
    ///
    /// # Errors
    /// If the file with the authorities cannot be used.
    pub fn new(timeout: Duration, ca_file: Option<&Path>) -> Result<Self, String> {
        // A redirect would send the headers, with their secrets, to another host.
        let mut agent = Agent::config_builder().timeout_global(Some(timeout)).max_redirects(0);
        agent = agent.http_status_as_error(false);
        if let Some(file) = ca_file {
            let authorities =
                tls::authorities(file).map_err(|problem| format!("tracing.ca_file: {}: {problem}", file.display()))?;
            let roots = RootCerts::new_with_certs(&authorities);
            agent = agent.tls_config(TlsConfig::builder().root_certs(roots).build());
        }
        Ok(Self(agent.build().into()))
    }

    fn send(&self, request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
        let (parts, body) = request.into_parts();
        let response = self.0.run(Request::from_parts(parts, &body[..]))?;
        let (parts, mut body) = response.into_parts();
        let body = body.with_config().limit(ANSWER_BYTES_MAX).read_to_vec()?;
        Ok(Response::from_parts(parts, body.into()))
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Client")
    }
}

impl HttpClient for Client {
    // As the macro `async_trait` of the trait writes it.
    fn send_bytes<'a, 'b>(
        &'a self,
        request: Request<Bytes>,
    ) -> Pin<Box<dyn Future<Output = Result<Response<Bytes>, HttpError>> + Send + 'b>>
    where
        'a: 'b,
        Self: 'b,
    {
        Box::pin(async move {
            // The exporter does not say what went wrong.
            self.send(request).inspect_err(|error| tracing::debug!(error, "traces were not sent"))
        })
    }
}
