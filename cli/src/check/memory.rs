//! The budgets of memory against what the machine and the control group give.

use std::fs;
use std::path::Path;

use bytesize::ByteSize;
use celeris_storage::StorageOptions;

use super::Subject;
use super::finding::Findings;

/// What a node takes besides its budgets, without the tables of its versions (`docs/run/configuration.md`).
const NODE_BYTES: u64 = 100 << 20;

const REMEDY: &str =
    "lower memory.users and the other budgets, or give it more (`celeris estimate-size` says what it needs)";

pub fn check(subject: &Subject, findings: &mut Findings) {
    let Some(machine) = of_machine() else { return };
    let group =
        of_control_group(&fs::read_to_string("/proc/self/cgroup").unwrap_or_default(), Path::new("/sys/fs/cgroup"));
    let allowed = group.map_or(machine, |group| group.min(machine));
    let memory = &subject.config.memory;
    let budgets = [memory.users, memory.features, memory.predictions, memory.selections, memory.seen, memory.blocks];
    let writes = 3 * StorageOptions::default().write_buffer_bytes as u64 / 2;
    let node = budgets.iter().map(ByteSize::as_u64).fold(NODE_BYTES + writes, u64::saturating_add);
    let limit = subject.config.training.limits.memory.map(|limit| limit.as_u64());
    let training = limit.unwrap_or(machine / 2);
    let size = |bytes| ByteSize::b(bytes).display().iec();
    let source = if allowed < machine { "the control group gives" } else { "the machine has" };
    let what = format!(
        "budgets and the node itself take up to {}, a training {}; {source} {}",
        size(node),
        size(training),
        size(allowed)
    );
    if node > allowed {
        findings.problem("memory", what, REMEDY);
    } else if limit.is_none() && allowed < machine && node.saturating_add(training) > allowed {
        let remedy =
            "set training.limits.memory: its default is half of the machine's, which is not what the process gets";
        findings.problem("memory", what, remedy);
    } else if node.saturating_add(training) > allowed {
        findings.warning("memory", what, format!("set training.limits.memory lower, or {REMEDY}"));
    } else {
        findings.ok("memory", what);
    }
}

fn of_machine() -> Option<u64> {
    let text = fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    line.trim().strip_suffix(" kB")?.parse::<u64>().ok()?.checked_mul(1024)
}

/// The least limit of the control groups that a process is in, as `/proc/self/cgroup` names them.
fn of_control_group(groups: &str, root: &Path) -> Option<u64> {
    let limits = groups.lines().filter_map(|line| {
        let mut fields = line.splitn(3, ':');
        let (_, controllers, path) = (fields.next()?, fields.next()?, fields.next()?);
        let path = path.trim_start_matches('/');
        match controllers {
            "" => least(root, path, "memory.max"),
            _ if controllers.split(',').any(|name| name == "memory") => {
                least(&root.join("memory"), path, "memory.limit_in_bytes")
            }
            _ => None,
        }
    });
    limits.min()
}

/// The least limit of a group and those above it. A container may see its own group as the root.
fn least(root: &Path, path: &str, file: &str) -> Option<u64> {
    let group = root.join(path);
    let groups = group.ancestors().take_while(|group| group.starts_with(root));
    let limits = groups.filter_map(|group| fs::read_to_string(group.join(file)).ok()?.trim().parse().ok());
    limits.min()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

    use super::*;

    #[test]
    fn the_least_limit_of_the_groups_counts() {
        let root = std::env::temp_dir().join(format!("celeris-groups-{}", std::process::id()));
        for (group, file, limit) in [
            ("a", "memory.max", "1000\n"),
            ("a/b", "memory.max", "max\n"),
            ("memory/docker/1", "memory.limit_in_bytes", "500\n"),
        ] {
            fs::create_dir_all(root.join(group)).unwrap();
            fs::write(root.join(group).join(file), limit).unwrap();
        }
        assert_eq!(of_control_group("0::/a/b\n", &root), Some(1000), "of the group above");
        assert_eq!(of_control_group("0::/\n", &root), None);
        assert_eq!(of_control_group("3:cpu:/x\n2:memory,hugetlb:/docker/1\n0::/a\n", &root), Some(500));
        assert_eq!(of_control_group("nonsense\n0::/../../etc\n", &root), None);
        fs::remove_dir_all(&root).unwrap();
    }
}
