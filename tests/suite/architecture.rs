//! What holds the house up: who may import whom, captions, and the purity of the engine.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// The modules in reading order, in layers: a module imports only from layers above its own. This
/// is the table in the README.
const LAYERS: &[&[&str]] = &[
    &["model", "os"],
    &["decode", "engine"],
    &["store"],
    &["exit", "spool"],
    &["config", "pipeline"],
    &["query"],
    &["maintenance"],
    &["daemon"],
    &["bench"],
    &["cli"],
];

/// What the engine must never name: it is handed time and facts, and hands back decisions.
const IMPURE: &[&str] = &[
    "std::fs",
    "std::io",
    "std::net",
    "std::env",
    "std::process",
    "std::thread",
    "std::time",
    "std::sync",
    "SystemTime",
    "Instant",
    "rusqlite",
    "log::",
    "println!",
    "eprintln!",
    "model::clock",
    "unsafe",
];

fn source_files(folder: &Path, files: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            source_files(&path, files);
        } else if path.extension().is_some_and(|ending| ending == "rs") {
            files.push(path);
        }
    }
}

fn sources() -> Vec<(String, String)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut files = Vec::new();
    source_files(&root.join("src"), &mut files);
    assert!(files.len() > 30, "only {} source files found", files.len());
    let name = |path: &Path| path.strip_prefix(root.join("src")).unwrap().display().to_string();
    files.iter().map(|path| (name(path), fs::read_to_string(path).unwrap())).collect()
}

/// The module of the top level that a file belongs to.
fn module(file: &str) -> &str {
    file.split('/').next().unwrap().trim_end_matches(".rs")
}

/// The modules of the top level that a text names: after `crate::`, also in braces.
fn imports(text: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let code: String = text.lines().filter(|line| !line.trim_start().starts_with("//")).collect();
    for after in code.split("crate::").skip(1) {
        let names = match after.strip_prefix('{') {
            Some(braced) => braced.split('}').next().unwrap(),
            None => after,
        };
        let first = |name: &str| -> String {
            let name = name.trim_start();
            name.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect()
        };
        match after.starts_with('{') {
            true => found.extend(names.split(',').map(first)),
            false => found.extend([first(names)]),
        }
    }
    found.remove("");
    found
}

#[test]
fn imports_run_one_way() {
    let layer_of: BTreeMap<&str, usize> = LAYERS
        .iter()
        .enumerate()
        .flat_map(|(layer, modules)| modules.iter().map(move |module| (*module, layer)))
        .collect();
    let mut wrong = Vec::new();
    let mut seen = BTreeSet::new();
    for (file, text) in sources() {
        let module = module(&file);
        if module == "lib" || module == "main" {
            continue;
        }
        let Some(layer) = layer_of.get(module) else {
            panic!("src/{file}: the module {module} stands in no layer");
        };
        seen.insert(module.to_owned());
        for import in imports(&text).iter().filter(|import| *import != module) {
            let allowed = layer_of.get(import.as_str()).is_some_and(|above| above < layer);
            if !allowed {
                wrong.push(format!("src/{file} imports crate::{import}"));
            }
        }
    }
    assert!(wrong.is_empty(), "imports against the order:\n{}", wrong.join("\n"));
    let known: BTreeSet<String> = layer_of.keys().map(|module| (*module).to_owned()).collect();
    assert_eq!(seen, known, "the table and src/ name different modules");
}

#[test]
fn the_import_reader_sees_all_forms() {
    let text = "use crate::model::event::{Event};\nuse crate::{store, engine::Judge};\n\
                // crate::cli in a comment\nfn f() { crate::query::report::utc(0) }";
    let found: Vec<String> = imports(text).into_iter().collect();
    assert_eq!(found, ["engine", "model", "query", "store"]);
}

#[test]
fn every_file_opens_with_a_caption() {
    for (file, text) in sources() {
        let first = text.lines().next().unwrap_or("");
        assert!(first.starts_with("//! ") && first.len() > 20, "src/{file} opens with: {first}");
    }
}

#[test]
fn the_engine_is_pure() {
    let mut wrong = Vec::new();
    for (file, text) in sources().iter().filter(|(file, _)| file.starts_with("engine/")) {
        let code = text.lines().filter(|line| !line.trim_start().starts_with("//"));
        for (number, line) in code.enumerate() {
            for name in IMPURE.iter().filter(|name| line.contains(**name)) {
                wrong.push(format!("src/{file}, about line {}: {name}", number + 1));
            }
        }
    }
    assert!(wrong.is_empty(), "the engine reaches outside:\n{}", wrong.join("\n"));
}

#[test]
fn the_store_trait_names_no_database() {
    let (_, text) =
        sources().into_iter().find(|(file, _)| file == "store/mod.rs").expect("src/store/mod.rs");
    for name in ["rusqlite", "pragma", "SELECT", "lock(", "retry"] {
        assert!(!text.contains(name), "src/store/mod.rs names {name}");
    }
}

#[test]
fn only_one_file_is_unsafe() {
    let unsafe_files: Vec<String> = sources()
        .into_iter()
        .filter(|(_, text)| text.lines().any(|line| line.contains("unsafe {")))
        .map(|(file, _)| file)
        .collect();
    assert_eq!(unsafe_files, ["spool/safe_open.rs"]);
}

#[test]
fn only_the_clock_reads_the_time_of_day() {
    for (file, text) in sources() {
        // a file's age is measured against the clock that files are dated by
        let allowed = [
            "model/clock.rs",
            "daemon/worker_loop.rs",
            "daemon/worker_loop/late_writes.rs",
            "pipeline/worker.rs",
        ];
        let allowed = allowed.contains(&file.as_str());
        let is_test = file.contains("tests") || text.contains("#[cfg(test)]");
        if !allowed && !is_test {
            assert!(!text.contains("SystemTime::now"), "src/{file} reads the clock");
        }
    }
}
