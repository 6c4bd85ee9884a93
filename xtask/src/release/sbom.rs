//! The SBOM: the packages that the binary is made of, in CycloneDX 1.6.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::process::Command;

use anyhow::{Context, Result};
use cargo_metadata::{CargoOpt, DependencyKind, Metadata, MetadataCommand, Package, PackageId};
use serde_json::{Value, json};

use super::{Release, output};
use crate::deps::SERVER;

pub fn make(release: &Release) -> Result<Vec<u8>> {
    let target = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
    let mut command = MetadataCommand::new();
    command.current_dir(&release.root).features(CargoOpt::SomeFeatures(Vec::new()));
    command.other_options(["--locked".to_owned(), "--filter-platform".to_owned(), target.clone()]);
    let metadata = command.exec().context("cannot read the dependencies")?;
    let checksums = checksums(&fs::read_to_string(release.root.join("Cargo.lock"))?)?;
    let server = metadata.packages.iter().find(|package| package.name.as_str() == SERVER).context("no server")?;
    let graph = linked(&metadata, &server.id, &built(release, &target)?)?;
    let component = |id: &PackageId| {
        let package = &metadata[id];
        component(package, checksums.get(&(package.name.to_string(), package.version.to_string())))
    };
    let components: Vec<Value> = graph.keys().filter(|id| **id != server.id).map(component).collect();
    let reference = |id: &PackageId| reference(&metadata[id]);
    let dependencies: Vec<Value> = graph
        .iter()
        .map(|(id, on)| json!({"ref": reference(id), "dependsOn": on.iter().map(reference).collect::<BTreeSet<_>>()}))
        .collect();
    let time = jiff::Timestamp::from_second(i64::try_from(release.time)?)?;
    let document = json!({
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {
            "timestamp": time.to_string(),
            "component": {"type": "application", "bom-ref": reference(&server.id), "name": "celeris", "version": release.version,
                "licenses": [{"expression": "Apache-2.0"}]},
        },
        "components": components,
        "dependencies": dependencies,
    });
    Ok(serde_json::to_vec_pretty(&document)?)
}

/// Names and versions of what a build of the server compiles for it. The features that `cargo metadata` resolves are those of
/// the whole workspace, its tests included.
fn built(release: &Release, target: &str) -> Result<BTreeSet<(String, String)>> {
    let mut command = Command::new("cargo");
    command.current_dir(&release.root).args(["tree", "--locked", "--package", SERVER, "--edges", "normal"]);
    command.args(["--target", target, "--prefix", "none", "--format", "{p}"]);
    let tree = output(&mut command)?;
    // Such as `serde v1.0.229`.
    let package = |line: &str| {
        let (name, rest) = line.split_once(" v")?;
        Some((name.to_owned(), rest.split(' ').next()?.to_owned()))
    };
    Ok(tree.lines().filter_map(package).collect())
}

/// What a package links, at any depth, of the packages that are `built`, and what each of these links itself: neither its
/// build nor its tests.
fn linked(
    metadata: &Metadata,
    server: &PackageId,
    built: &BTreeSet<(String, String)>,
) -> Result<BTreeMap<PackageId, Vec<PackageId>>> {
    let resolve = metadata.resolve.as_ref().context("cargo metadata resolved no dependencies")?;
    let nodes: BTreeMap<&PackageId, &cargo_metadata::Node> =
        resolve.nodes.iter().map(|node| (&node.id, node)).collect();
    let (mut graph, mut next) = (BTreeMap::new(), vec![server.clone()]);
    while let Some(id) = next.pop() {
        let Some(node) = nodes.get(&id).filter(|_| !graph.contains_key(&id)) else { continue };
        let is_linked = |dependency: &&cargo_metadata::NodeDep| {
            let package = &metadata[&dependency.pkg];
            dependency.dep_kinds.iter().any(|kind| kind.kind == DependencyKind::Normal)
                && built.contains(&(package.name.to_string(), package.version.to_string()))
        };
        let on: Vec<PackageId> = node.deps.iter().filter(is_linked).map(|dependency| dependency.pkg.clone()).collect();
        next.extend(on.iter().cloned());
        graph.insert(id, on);
    }
    Ok(graph)
}

fn reference(package: &Package) -> String {
    format!("pkg:cargo/{}@{}", package.name, package.version.to_string().replace('+', "%2B"))
}

fn component(package: &Package, checksum: Option<&String>) -> Value {
    let reference = reference(package);
    let mut component = json!({
        "type": "library", "bom-ref": reference, "name": package.name, "version": package.version.to_string(), "purl": reference,
    });
    if let Some(licence) = &package.license {
        // As crates wrote it before SPDX.
        component["licenses"] = json!([{"expression": licence.replace('/', " OR ")}]);
    }
    if let Some(checksum) = checksum {
        component["hashes"] = json!([{"alg": "SHA-256", "content": checksum}]);
    }
    component
}

/// The checksums of packages by name and version, from a `Cargo.lock`.
fn checksums(lock: &str) -> Result<BTreeMap<(String, String), String>> {
    let lock: toml::Table = lock.parse()?;
    let packages = lock.get("package").and_then(toml::Value::as_array).context("Cargo.lock has no packages")?;
    let of = |package: &toml::Value| {
        let text = |key: &str| package.get(key)?.as_str().map(str::to_owned);
        Some(((text("name")?, text("version")?), text("checksum")?))
    };
    Ok(packages.iter().filter_map(of).collect())
}
