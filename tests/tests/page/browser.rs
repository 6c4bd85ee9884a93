//! A headless Chromium per visit, controlled through chromedriver.

use std::env;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use fantoccini::wd::Capabilities;
use fantoccini::{Client, ClientBuilder};
use hyper_util::client::legacy::connect::HttpConnector;
use serde_json::{Value, json};
use tempfile::TempDir;

const START_MAX: Duration = Duration::from_secs(30);

/// How often a chromedriver is started that ends again.
const STARTS_MAX: usize = 5;

/// Maximum wait for a condition on a page. Far longer than needed, so that it also suffices on a
/// busy machine.
const WAIT_MAX: Duration = Duration::from_secs(60);
const WAIT_STEP: Duration = Duration::from_millis(20);

/// The screen that the browser emulates.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Screen {
    width: u32,
    height: u32,
    touch: bool,
    dark: bool,
}

impl Screen {
    /// A laptop's browser window.
    pub const DESK: Self = Self { width: 1280, height: 900, touch: false, dark: false };

    /// The narrowest phone in common use.
    pub const PHONE: Self = Self { width: 360, height: 740, touch: true, dark: false };

    /// The same with the dark colours of the page.
    #[must_use]
    pub fn dark(self) -> Self {
        Self { dark: true, ..self }
    }

    /// The width of the page in CSS pixels.
    pub fn width(self) -> u32 {
        self.width
    }
}

/// The required programs that are not installed.
pub fn missing_programs() -> Vec<&'static str> {
    let path = env::var_os("PATH").unwrap_or_default();
    let installed = |program: &&str| env::split_paths(&path).any(|folder| folder.join(program).is_file());
    ["chromium", "chromedriver"].into_iter().filter(|program| !installed(program)).collect()
}

/// The state of the document, the number of files and replies that it has received, and those that are not 200.
const LOADS: &str = "(() => {
    const loads = performance.getEntriesByType('resource').map((it) => [it.name, it.responseStatus]);
    return [document.readyState, loads.length, loads.filter(([, status]) => status !== 200)];
})()";

/// Opens a browser, runs `visit` in it, and closes it even if `visit` fails.
///
/// # Errors
/// If `visit` fails, or the browser cannot be started or closed.
pub async fn browse(screen: Screen, visit: impl AsyncFnOnce(&Client) -> Result<()>) -> Result<()> {
    let profile = TempDir::new()?;
    let driver = Driver::start()?;
    let client = ClientBuilder::new(HttpConnector::new())
        .capabilities(capabilities(screen, profile.path()))
        .connect(&driver.url)
        .await
        .context("chromedriver opens no session")?;
    let visited = visit(&client).await;
    client.close().await.context("the browser does not close")?;
    visited
}

/// Waits until the JavaScript expression `condition` is true in the page.
///
/// # Errors
/// If it is not within a minute.
pub async fn wait_until(client: &Client, condition: &str) -> Result<()> {
    let deadline = tokio::time::Instant::now() + WAIT_MAX;
    let mut steps = tokio::time::interval(WAIT_STEP);
    loop {
        steps.tick().await;
        if evaluate(client, condition).await? == Value::Bool(true) {
            return Ok(());
        }
        if tokio::time::Instant::now() > deadline {
            let notice = evaluate(client, "document.body.innerText.slice(0, 2000)").await?;
            let loads = evaluate(client, LOADS).await?;
            bail!("`{condition}` did not come true in {WAIT_MAX:?}; the page reads {notice}, and has loaded {loads}");
        }
    }
}

/// The value of a JavaScript expression in the page.
///
/// # Errors
/// If it throws.
pub async fn evaluate(client: &Client, expression: &str) -> Result<Value> {
    client.execute(&format!("return ({expression})"), Vec::new()).await.with_context(|| expression.to_owned())
}

fn capabilities(screen: Screen, profile: &Path) -> Capabilities {
    let arguments = [
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-quic",
        "--no-first-run",
        "--disable-background-networking",
        "--disable-component-update",
        "--disable-sync",
        "--disable-dev-shm-usage",
        "--hide-scrollbars",
        // The preferred colour scheme of web pages: 0 is dark, 1 is light.
        &format!("--blink-settings=preferredColorScheme={}", u8::from(!screen.dark)),
        &format!("--user-data-dir={}", profile.display()),
    ];
    let metrics = json!({
        "width": screen.width,
        "height": screen.height,
        "pixelRatio": 2,
        "mobile": screen.touch,
        "touch": screen.touch,
    });
    let options = json!({ "args": arguments, "mobileEmulation": { "deviceMetrics": metrics } });
    Capabilities::from_iter([("browserName".to_owned(), json!("chrome")), ("goog:chromeOptions".to_owned(), options)])
}

/// A chromedriver on a free port, killed on drop.
struct Driver {
    process: Child,
    url: String,
}

impl Driver {
    /// Starts one. It ends at once if the port that it has chosen for IPv4 is taken for IPv6; then the next is tried.
    fn start() -> Result<Self> {
        let mut started = Self::start_once();
        for _ in 1..STARTS_MAX {
            if started.is_err() {
                started = Self::start_once();
            }
        }
        started
    }

    fn start_once() -> Result<Self> {
        let mut process = Command::new("chromedriver")
            .arg("--port=0")
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .context("chromedriver does not start")?;
        let output = process.stdout.take().expect("stdout is piped");
        let (sender, receiver) = mpsc::channel();
        // Read to the end: the driver would block once the pipe is full.
        thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                if let Some(port) = port_in(&line) {
                    let _ = sender.send(port);
                }
            }
        });
        let mut driver = Self { process, url: String::new() };
        let port = receiver.recv_timeout(START_MAX).context("chromedriver names no port")?;
        driver.url = format!("http://127.0.0.1:{port}");
        Ok(driver)
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        // The process may have exited already.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// The port in "ChromeDriver was started successfully on port 41234."
fn port_in(line: &str) -> Option<u16> {
    line.strip_prefix("ChromeDriver was started successfully on port ")?.trim_end_matches('.').parse().ok()
}
