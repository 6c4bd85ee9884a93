//! `cargo xtask release`: what people install.
//!
//! A tarball, a Debian package, a Python wheel that carries the binary, an SBOM, and checksums of
//! them. `scripts/check-release` installs each in an empty environment and runs the demo from it.
//! The archives are the same bytes for the same binary and `SOURCE_DATE_EPOCH`, by default the time
//! of the commit.
//!
//! Modules: `binary` (builds it, and reads what it needs of the system), `contents` (the files that
//! are installed), and one for each artefact.

mod binary;
mod contents;
mod deb;
mod sbom;
mod tarball;
mod wheel;

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use sha2::{Digest as _, Sha256};

use self::binary::Needs;
use self::contents::File;
use crate::deps::SERVER;

/// What is released.
struct Release {
    root: PathBuf,
    version: String,
    /// Seconds since 1970 that files in archives have.
    time: u64,
    binary: Vec<u8>,
    needs: Needs,
    /// The files below the prefix, such as `bin/celeris`.
    files: Vec<File>,
}

/// Options of the command.
#[derive(Debug, clap::Args)]
pub struct Options {
    /// The folder of the artefacts, `artefacts` in the target folder by default; what it has of an
    /// earlier release is replaced.
    #[arg(long)]
    out: Option<PathBuf>,
    /// Packs this binary instead of building one. One of the whole workspace has the fault points
    /// of the tests and is refused, unless `--with-fault-points` says that it is for a test only.
    #[arg(long)]
    binary: Option<PathBuf>,
    #[arg(long, hide = true, requires = "binary")]
    with_fault_points: bool,
}

/// Makes all artefacts, and returns their folder.
///
/// # Errors
/// If the build or a tool fails; its output has the reason.
pub fn make(options: &Options) -> Result<PathBuf> {
    let metadata = cargo_metadata::MetadataCommand::new().exec().context("cannot read the manifests")?;
    let package = metadata.packages.iter().find(|package| package.name.as_str() == SERVER);
    let version = package.with_context(|| format!("there is no package {SERVER}"))?.version.to_string();
    let root = metadata.workspace_root.as_std_path().to_owned();
    let out = options.out.clone().unwrap_or_else(|| metadata.target_directory.join("artefacts").into_std_path_buf());
    fs::create_dir_all(&out).with_context(|| format!("cannot create {}", out.display()))?;
    let program = match &options.binary {
        Some(binary) => binary.clone(),
        None => binary::build(&root)?,
    };
    let work = out.join(format!(".work-{}", std::process::id()));
    fs::create_dir_all(&work).with_context(|| format!("cannot create {}", work.display()))?;
    let stripped = work.join("celeris");
    binary::strip(&program, &stripped)?;
    let binary = fs::read(&stripped)?;
    ensure!(
        options.with_fault_points || !binary::has_fault_points(&binary),
        "{} has the fault points of the tests: leave --binary out, and it is built without them",
        program.display()
    );
    let needs = Needs::of(&stripped)?;
    let files = contents::below_prefix(&root, &stripped, &work)?;
    let release = Release { time: time(&root)?, root, version, binary, needs, files };
    let artefacts = [
        (tarball::name(&release), tarball::make(&release)?),
        (deb::name(&release), deb::make(&release, &stripped)?),
        (wheel::name(&release), wheel::make(&release)?),
        (format!("celeris-{}.cdx.json", release.version), sbom::make(&release)?),
    ];
    fs::remove_dir_all(&work)?;
    remove_earlier(&out)?;
    let mut sums = String::new();
    for (name, bytes) in artefacts {
        let _ = writeln!(sums, "{}  {name}", hex(&Sha256::digest(&bytes)));
        println!("{:>11} bytes  {name}", bytes.len());
        fs::write(out.join(&name), bytes).with_context(|| format!("cannot write {name}"))?;
    }
    fs::write(out.join("SHA256SUMS"), sums).context("cannot write SHA256SUMS")?;
    println!("needs glibc 2.{} and libstdc++ {}", release.needs.glibc, release.needs.libstdcxx);
    Ok(out)
}

/// Removes what an earlier run has made, and nothing else.
fn remove_earlier(out: &Path) -> Result<()> {
    for entry in fs::read_dir(out)? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let is_ours = name.starts_with("celeris")
            && [".tar.gz", ".deb", ".whl", ".cdx.json"].iter().any(|end| name.ends_with(end));
        if is_ours {
            fs::remove_file(&path).with_context(|| format!("cannot remove {}", path.display()))?;
        }
    }
    Ok(())
}

/// `SOURCE_DATE_EPOCH`, or the time of the commit.
fn time(root: &Path) -> Result<u64> {
    if let Ok(time) = std::env::var("SOURCE_DATE_EPOCH") {
        return time.parse().with_context(|| format!("SOURCE_DATE_EPOCH: {time:?} is no number of seconds"));
    }
    let text = output(Command::new("git").args(["log", "-1", "--format=%ct"]).current_dir(root))
        .context("set SOURCE_DATE_EPOCH where there is no git")?;
    Ok(text.trim().parse()?)
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// What a program prints.
fn output(command: &mut Command) -> Result<String> {
    let program = command.get_program().to_owned();
    let output = command.stderr(std::process::Stdio::inherit()).output();
    let output = output.with_context(|| format!("cannot run {}", program.display()))?;
    ensure!(output.status.success(), "{} ended with {}", program.display(), output.status);
    Ok(String::from_utf8(output.stdout)?)
}
