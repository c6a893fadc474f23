//! Which package may depend on which: py, verify -> ops -> kernels -> core.

use anyhow::{Context, Result};
use serde_json::Value;

use super::Breach;

/// A package of the workspace and the packages that it names.
pub(super) struct Package {
    name: String,
    dependencies: Vec<Dependency>,
}

struct Dependency {
    name: String,
    /// Only for tests, examples and benchmarks.
    dev: bool,
}

/// The floor of the house that a package lives on.
#[derive(Clone, Copy, PartialEq)]
enum Layer {
    Core,
    Kernels,
    Op,
    Verify,
    Py,
    Ci,
}

/// The packages in the output of `cargo metadata`.
pub(super) fn packages(metadata: &Value) -> Result<Vec<Package>> {
    let read = |package: &Value| {
        let dependencies = package["dependencies"].as_array()?.iter().map(|dependency| {
            Some(Dependency { name: dependency["name"].as_str()?.into(), dev: dependency["kind"] == "dev" })
        });
        Some(Package { name: package["name"].as_str()?.into(), dependencies: dependencies.collect::<Option<_>>()? })
    };
    let packages = metadata["packages"].as_array().map(|packages| packages.iter().map(read).collect());
    packages.flatten().context("the output of cargo metadata has no list of packages with dependencies")
}

/// The operators that have a package, as kernel names spell them: `silu_gate`.
pub(super) fn ops(packages: &[Package]) -> Vec<String> {
    let ops = packages.iter().filter(|package| layer(&package.name) == Some(Layer::Op));
    ops.map(|package| package.name.trim_start_matches("cake-").replace('-', "_")).collect()
}

/// Every dependency that a package may not have.
pub(super) fn check(packages: &[Package]) -> Vec<Breach> {
    let mut breaches = Vec::new();
    for package in packages {
        let Some(from) = layer(&package.name) else {
            breaches.push(Breach::new(&package.name, "a package is called cake-<name>, or ci"));
            continue;
        };
        for dependency in &package.dependencies {
            let Some(to) = layer(&dependency.name) else { continue };
            if !may_name(from, to, dependency.dev) {
                let kind = if dependency.dev { "a dev-dependency" } else { "a dependency" };
                let rule = format!("may not have {} as {kind}: {}", dependency.name, rule(from));
                breaches.push(Breach::new(&package.name, rule));
            }
        }
    }
    breaches
}

fn layer(package: &str) -> Option<Layer> {
    match package {
        "ci" => Some(Layer::Ci),
        "cake-core" => Some(Layer::Core),
        "cake-kernels" => Some(Layer::Kernels),
        "cake-verify" => Some(Layer::Verify),
        "cake-py" => Some(Layer::Py),
        _ => package.starts_with("cake-").then_some(Layer::Op),
    }
}

fn may_name(from: Layer, to: Layer, dev: bool) -> bool {
    let below: &[Layer] = match from {
        Layer::Core | Layer::Ci => &[],
        Layer::Kernels => &[Layer::Core],
        Layer::Op => &[Layer::Core, Layer::Kernels],
        Layer::Verify => &[Layer::Core, Layer::Kernels, Layer::Op],
        Layer::Py => &[Layer::Core, Layer::Kernels, Layer::Op, Layer::Verify],
    };
    below.contains(&to) || (dev && to == Layer::Verify)
}

fn rule(from: Layer) -> &'static str {
    match from {
        Layer::Core => "core knows no other package of Cake",
        Layer::Kernels => "kernels know only core",
        Layer::Op => "an operator knows kernels and core, never another operator, and verify only in tests",
        Layer::Verify => "verify knows operators, kernels and core",
        Layer::Py => "py knows the packages below it",
        Layer::Ci => "ci knows no package of Cake, so that it builds when they do not",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn package(name: &str, normal: &[&str], dev: &[&str]) -> Package {
        let dependency = |dev| move |name: &&str| Dependency { name: (*name).into(), dev };
        let dependencies = normal.iter().map(dependency(false)).chain(dev.iter().map(dependency(true))).collect();
        Package { name: name.into(), dependencies }
    }

    fn breaches(name: &str, normal: &[&str], dev: &[&str]) -> usize {
        check(&[package(name, normal, dev)]).len()
    }

    #[test]
    fn the_house_as_it_is_meant_passes() {
        assert_eq!(breaches("cake-core", &["cudarc", "half"], &["proptest"]), 0);
        assert_eq!(breaches("cake-kernels", &["cake-core", "zstd"], &[]), 0);
        assert_eq!(breaches("cake-rmsnorm", &["cake-core", "cake-kernels"], &["cake-verify"]), 0);
        assert_eq!(breaches("cake-verify", &["cake-core", "cake-kernels", "cake-rmsnorm", "cake-silu-gate"], &[]), 0);
        assert_eq!(breaches("cake-py", &["cake-core", "cake-rmsnorm", "cake-silu-gate"], &["cake-verify"]), 0);
        assert_eq!(breaches("ci", &["clap"], &[]), 0);
    }

    #[test]
    fn a_lower_layer_may_not_name_a_higher_one() {
        assert_eq!(breaches("cake-core", &["cake-kernels", "cake-rmsnorm"], &["cake-rmsnorm"]), 3);
        assert_eq!(breaches("cake-kernels", &["cake-rmsnorm", "cake-verify"], &[]), 2);
        assert_eq!(breaches("cake-rmsnorm", &["cake-verify", "cake-py"], &[]), 2);
        assert_eq!(breaches("ci", &["cake-core"], &[]), 1);
    }

    #[test]
    fn operators_never_name_each_other() {
        assert_eq!(breaches("cake-rmsnorm", &["cake-silu-gate"], &[]), 1);
        assert_eq!(breaches("cake-silu-gate", &[], &["cake-rmsnorm"]), 1);
    }

    #[test]
    fn a_package_has_a_known_kind_of_name() {
        assert_eq!(breaches("helpers", &[], &[]), 1);
    }

    #[test]
    fn operators_are_spelled_as_in_kernel_names() {
        let packages = ["cake-core", "cake-silu-gate", "cake-rmsnorm", "ci"].map(|name| package(name, &[], &[]));
        assert_eq!(ops(&packages), ["silu_gate", "rmsnorm"]);
    }

    #[test]
    fn metadata_is_read() {
        let json = r#"{"packages": [{"name": "cake-core", "dependencies":
            [{"name": "half", "kind": null}, {"name": "proptest", "kind": "dev"}]}]}"#;
        let packages = packages(&serde_json::from_str(json).unwrap()).unwrap();
        let dependencies: Vec<_> = packages[0].dependencies.iter().map(|dep| (dep.name.as_str(), dep.dev)).collect();
        assert_eq!(dependencies, [("half", false), ("proptest", true)]);
    }
}
