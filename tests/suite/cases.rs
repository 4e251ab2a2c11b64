//! Cases from the field: that each has a test whose name carries its number, or a reason why not.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

/// All numbers. Those that are missing in between were never given.
const NUMBERS: &str = "1 2 4 5 7 8 10 11 13 14 16 17 19 20 22 23 25 26 28 29 31 32 34 35 37 38 40 \
                       41 43 46 47 49 50 52 53 55 56 58 59 61 62 64 65 67 68 70 71 73 74 76 77 79 \
                       80 82 83 85 88 89 91 94 95 97 98 100 101 103 104 106 109 110 111 112 113 \
                       114 116 117 118 119 120 121 122 123 124 125 126 127 128 129 130 131 132 \
                       133 134 135 136 137 138 139 140 141 142 143 144 145 146 147 148 149 150 \
                       151 152 P1 P2 P3 P4 P5 P6";

/// How a number stands in the name of a test: `022`, `p1`.
fn in_name(number: &str) -> String {
    match number.parse::<u32>() {
        Ok(number) => format!("{number:03}"),
        Err(_) => number.to_lowercase(),
    }
}

/// The numbers that the name of a test carries: `case_097_098_closing` has two.
fn numbers_of(name: &str) -> Vec<String> {
    let is_number = |part: &&str| {
        let digits = part.strip_prefix('p').unwrap_or(part);
        !digits.is_empty() && digits.chars().all(|c| c.is_ascii_digit())
    };
    let parts = name.split('_').skip(1).filter(|part| *part != "and");
    parts.take_while(is_number).map(str::to_owned).collect()
}

/// What follows `fn ` or stands before `() {`, in all sources and scripts: the names of tests.
fn names(folder: &Path, found: &mut BTreeSet<String>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let ending = path.extension().and_then(|ending| ending.to_str());
        if path.is_dir() {
            names(&path, found);
        } else if matches!(ending, Some("rs" | "sh")) {
            let text = fs::read_to_string(&path).unwrap();
            let words = text.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'));
            found.extend(words.filter(|word| word.contains("case_")).map(str::to_owned));
        }
    }
}

/// Each line: number, what went wrong elsewhere, and the tests, or `-` and why there are none.
fn table() -> BTreeMap<String, (String, Vec<String>)> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cases.txt");
    let text = fs::read_to_string(path).unwrap();
    let mut table = BTreeMap::new();
    let mut last = None;
    for line in text.lines().filter(|line| !line.starts_with('#') && !line.trim().is_empty()) {
        if let Some(more) = line.strip_prefix("    ") {
            let number: &String = last.as_ref().expect("a case comes first");
            let (_, tests): &mut (String, Vec<String>) = table.get_mut(number).unwrap();
            tests.push(more.trim().to_owned());
        } else {
            let (number, what) = line.split_once(' ').expect(line);
            let before = table.insert(number.to_owned(), (what.trim().to_owned(), Vec::new()));
            assert!(before.is_none(), "{number} stands twice");
            last = Some(number.to_owned());
        }
    }
    table
}

/// Has failed for a test that was renamed, a number that was left out, and a test that no line
/// named.
#[test]
fn each_case_has_a_test_with_its_number_or_a_reason() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut sources = BTreeSet::new();
    for folder in ["src", "tests"] {
        names(&root.join(folder), &mut sources);
    }
    sources.retain(|name| name.starts_with("case_") || name.starts_with("scenario_case_"));
    let mut wrong = Vec::new();
    let table = table();
    let expected: BTreeSet<_> = NUMBERS.split_whitespace().map(str::to_owned).collect();
    let found: BTreeSet<_> = table.keys().cloned().collect();
    if found != expected {
        let differing = found.symmetric_difference(&expected).collect::<Vec<_>>();
        wrong.push(format!("the table and the numbers differ in {differing:?}"));
    }
    let mut listed = BTreeSet::new();
    for (number, (_, tests)) in &table {
        if tests.is_empty() {
            wrong.push(format!("{number}: neither a test nor a reason"));
        }
        for test in tests.iter().filter(|test| !test.starts_with("- ")) {
            let bare = test.strip_prefix("scenario_").unwrap_or(test);
            listed.insert(test.clone());
            if !sources.contains(test) {
                wrong.push(format!("{number}: there is no test {test}"));
            } else if !numbers_of(bare).contains(&in_name(number)) {
                wrong.push(format!("{number}: {test} does not carry the number"));
            }
        }
    }
    // the names in this file are examples
    let examples = ["case_", "case_097_098_closing", "scenario_case_"];
    for name in sources.iter().filter(|name| !examples.contains(&name.as_str())) {
        if !listed.contains(name) {
            wrong.push(format!("no line has the test {name}"));
        }
    }
    assert!(wrong.is_empty(), "tests/cases.txt:\n{}", wrong.join("\n"));
}
