//! Reads the manifests of the workspace.

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use anyhow::{Context, Result};
use cargo_metadata::{Metadata, MetadataCommand, Package};

/// One crate of the workspace.
#[derive(Debug, Clone)]
pub struct Crate {
    /// The package name, such as `celeris-model`.
    pub name: String,
    /// The folder of the manifest.
    pub folder: PathBuf,
    /// Declared dependencies of every kind and target, without duplicates.
    pub dependencies: Vec<Dependency>,
}

/// One declared dependency.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Dependency {
    /// The package name.
    pub package: String,
    /// The crate name in sources, such as `celeris_model`.
    pub import: String,
}

/// A workspace.
#[derive(Debug, Clone)]
pub struct Workspace {
    /// The folder of the root manifest.
    pub root: PathBuf,
    /// The crates of the workspace.
    pub crates: Vec<Crate>,
    /// Packages under `workspace.dependencies` of the root manifest.
    pub shared: Vec<String>,
}

/// Reads the workspace that the current folder is in.
///
/// # Errors
/// If `cargo metadata` fails, or the root manifest cannot be read.
pub fn read_workspace() -> Result<Workspace> {
    read(&MetadataCommand::new())
}

fn read(command: &MetadataCommand) -> Result<Workspace> {
    let metadata = command.exec().context("cannot read the manifests of the workspace")?;
    let packages = metadata.workspace_packages().into_iter();
    let crates = packages.map(|package| read_crate(&metadata, package)).collect::<Result<_>>()?;
    let manifest = metadata.workspace_root.join("Cargo.toml");
    let text = fs::read_to_string(&manifest).with_context(|| format!("cannot read {manifest}"))?;
    let shared = shared_dependencies(&text).with_context(|| format!("cannot read {manifest}"))?;
    Ok(Workspace { root: metadata.workspace_root.into(), crates, shared })
}

/// The packages that a build of `package` alone links: itself and its normal dependencies at any
/// depth, with the features that this build has.
///
/// # Errors
/// If `cargo tree` fails.
pub fn read_linked(package: &str) -> Result<Vec<String>> {
    linked(package, &[])
}

fn linked(package: &str, options: &[&str]) -> Result<Vec<String>> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut tree = Command::new(cargo);
    tree.args(["tree", "--package", package, "--edges", "normal", "--prefix", "none", "--format", "{p}"]).args(options);
    let output = tree.stderr(Stdio::inherit()).output().context("cannot run cargo tree")?;
    anyhow::ensure!(output.status.success(), "cargo tree failed for {package}");
    let lines = String::from_utf8(output.stdout)?;
    // A line is the name, the version, and notes.
    let names: BTreeSet<&str> = lines.lines().filter_map(|line| line.split_whitespace().next()).collect();
    Ok(names.into_iter().map(str::to_owned).collect())
}

/// The packages under `workspace.dependencies` of a root manifest.
fn shared_dependencies(text: &str) -> Result<Vec<String>> {
    let manifest: toml::Table = text.parse()?;
    let declared = manifest.get("workspace").and_then(|workspace| workspace.get("dependencies"));
    let declared = declared.and_then(|declared| declared.as_table()).into_iter().flatten();
    let package = |(name, dependency): (&String, &toml::Value)| {
        let renamed = dependency.get("package").and_then(|package| package.as_str());
        renamed.map_or_else(|| name.clone(), str::to_owned)
    };
    Ok(declared.map(package).collect())
}

fn read_crate(metadata: &Metadata, package: &Package) -> Result<Crate> {
    let resolve = metadata.resolve.as_ref().context("cargo metadata resolved no dependencies")?;
    let node = resolve.nodes.iter().find(|node| node.id == package.id).context("a member is not resolved")?;
    let import = |declared: &cargo_metadata::Dependency| {
        // A library may have another name than its package, as `md-5` does; only the resolved graph
        // contains it. A dependency outside of the graph, such as an optional one that no feature
        // enables, has the package's name.
        let resolved = node.deps.iter().find(|resolved| metadata[&resolved.pkg].name.as_str() == declared.name);
        let unresolved = || declared.name.replace('-', "_");
        let renamed = declared.rename.as_ref().map(|name| name.replace('-', "_"));
        renamed.unwrap_or_else(|| resolved.map_or_else(unresolved, |resolved| resolved.name.clone()))
    };
    let mut dependencies: Vec<Dependency> = package
        .dependencies
        .iter()
        .map(|declared| Dependency { package: declared.name.clone(), import: import(declared) })
        .collect();
    dependencies.sort();
    dependencies.dedup();
    let folder = package.manifest_path.parent().context("a manifest lies in a folder")?;
    Ok(Crate { name: package.name.to_string(), folder: folder.as_std_path().to_path_buf(), dependencies })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

    use std::fs;
    use std::path::Path;

    use super::*;

    /// Writes a library of this name, with `manifest` after the section `package`.
    fn write_crate(folder: &Path, name: &str, manifest: &str) {
        let root = folder.join(name);
        fs::create_dir_all(root.join("src")).unwrap();
        fs::write(root.join("src/lib.rs"), "").unwrap();
        let head = format!("[package]\nname = \"{name}\"\nversion = \"0.1.0\"\nedition = \"2024\"\n");
        fs::write(root.join("Cargo.toml"), head + manifest).unwrap();
    }

    #[test]
    fn sources_know_a_dependency_by_its_library_or_its_new_name() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, manifest: &str| write_crate(folder.path(), name, manifest);
        write("plain-name", "");
        write("odd-1", "[lib]\nname = \"odd\"\n");
        write("long-name", "");
        write(
            "attic",
            r#"
                [dependencies]
                plain-name = { path = "../plain-name" }
                short-er = { path = "../long-name", package = "long-name" }
                [dev-dependencies]
                odd-1 = { path = "../odd-1" }
                plain-name = { path = "../plain-name" }
                [workspace]
            "#,
        );
        let mut command = MetadataCommand::new();
        command.manifest_path(folder.path().join("attic/Cargo.toml")).other_options(["--offline".to_owned()]);
        let crates = read(&command).unwrap().crates;
        let attic = crates.iter().find(|member| member.name == "attic").unwrap();
        let pairs: Vec<_> = attic.dependencies.iter().map(|d| (d.package.as_str(), d.import.as_str())).collect();
        assert_eq!(pairs, [("long-name", "short_er"), ("odd-1", "odd"), ("plain-name", "plain_name")]);
    }

    #[test]
    fn a_build_of_one_package_links_its_normal_dependencies_with_its_own_features() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, manifest: &str| write_crate(folder.path(), name, manifest);
        write("deep", "");
        write("of-builds", "");
        write("of-tests", "");
        write("of-a-feature", "");
        write(
            "library",
            r#"
                [features]
                faults = ["dep:of-a-feature"]
                [dependencies]
                deep = { path = "../deep" }
                of-a-feature = { path = "../of-a-feature", optional = true }
            "#,
        );
        write("tests", "[dependencies]\nlibrary = { path = \"../library\", features = [\"faults\"] }\n");
        write(
            "binary",
            r#"
                [dependencies]
                library = { path = "../library" }
                [build-dependencies]
                of-builds = { path = "../of-builds" }
                [dev-dependencies]
                of-tests = { path = "../of-tests" }
            "#,
        );
        let members = "[workspace]\nresolver = \"3\"\nmembers = [\"library\", \"tests\", \"binary\"]\n";
        let root = folder.path().join("Cargo.toml");
        fs::write(&root, members).unwrap();
        let options = ["--offline", "--manifest-path", root.to_str().unwrap()];
        assert_eq!(linked("binary", &options).unwrap(), ["binary", "deep", "library"]);
        assert_eq!(linked("tests", &options).unwrap(), ["deep", "library", "of-a-feature", "tests"]);
    }

    #[test]
    fn shared_dependencies_are_known_by_their_packages() {
        let text = "[workspace]\nmembers = []\n[workspace.dependencies]\nserde = \"1\"\nshort = { version = \"2\", package = \"long\" }\n";
        assert_eq!(shared_dependencies(text).unwrap(), ["serde", "long"]);
        assert!(shared_dependencies("[package]\nname = \"attic\"\n").unwrap().is_empty());
    }
}
