//! Runs the scripts in tests/scenarios: what the commands are given, and what they must answer.
//!
//! A script is a list of commands. Under each, indented by two spaces, stands what it is given;
//! under `----`, up to the next empty line, what it must answer. Lines with `#` are comments.
//! `WINDOWFLOW_REWRITE=1` writes the answers as they are now, and fails if that changed a script.
//!
//! | command | what it does |
//! | --- | --- |
//! | `ingest NAME [ARGS]` | makes the file and ingests it; with nothing given, that of before |
//! | `check NAME [ARGS]` | the same for `check` |
//! | `report`, `late`, `held`, `sources [ARGS]` | the JSON form, in short |
//! | `text [ARGS]` | the windows of the report as text |
//! | `file NAME` | makes a file of another kind |
//! | `replay` | every `ingest` so far again, in order |
//! | `late --apply`, `release`, `discard [ARGS]` | as it is |
//! | `$ ARGS` | any other command as it is; what stands under it goes to its standard input |
//!
//! A file is written in short, one event a line: `id key timestamp_ms value [source [version]]`,
//! `-` for no source, and `*N` before it for N of them with `#` as their number from 0. After
//! `ingest NAME raw` it stands there as it is, `\xNN` being a byte; `unended` leaves out the last
//! newline. `{{a*N}}` is N times `a`, also in answers.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::world::{Ran, World};

/// Cases from the field that a script shows: the number in the name, and the script.
macro_rules! cases {
    ($($name:ident: $script:literal,)*) => {
        $(#[test] fn $name() { play(&[$script.to_owned()]); })*
        const CASES: &[&str] = &[$($script),*];
    };
}

cases! {
    case_043_080_integers_are_exact_from_end_to_end: "numbers.txt",
    case_047_a_last_line_without_a_newline_counts: "batches.txt",
    case_070_what_is_final_stays_and_the_boundary_is_exact: "order-and-boundaries.txt",
    case_071_equal_timestamps_have_one_fate: "equal-timestamps.txt",
    case_079_a_sum_never_leaves_its_range: "overflow.txt",
    case_088_past_the_horizon_a_repeat_is_expired_each_time: "horizon.txt",
    case_089_091_known_ids_do_not_stand_in_the_way_of_new_ones: "known-and-new.txt",
}

#[test]
fn scenarios() {
    let mut names: Vec<String> = fs::read_dir(folder())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| name.ends_with(".txt") && !CASES.contains(&name.as_str()))
        .collect();
    names.sort();
    assert!(names.len() >= 10, "only {} scripts in {}", names.len(), folder().display());
    play(&names);
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/scenarios")
}

fn play(names: &[String]) {
    let rewrite = std::env::var_os("WINDOWFLOW_REWRITE").is_some();
    let mut wrong = String::new();
    for name in names {
        let path = folder().join(name);
        let text = fs::read_to_string(&path).unwrap();
        let mut stage = Stage::new();
        let mut written = String::new();
        for part in parts(&text, name) {
            let Part::Command(command) = part else {
                writeln!(written, "{}", part.aside()).unwrap();
                continue;
            };
            let answer = stage.answer(&command);
            if answer != command.answer && !rewrite {
                let (line, typed) = (command.line, &command.typed);
                writeln!(wrong, "{name}:{line}: {typed}\n{}", diff(&command.answer, &answer))
                    .unwrap();
            }
            command.write(&answer, &mut written);
        }
        if rewrite && written != text {
            fs::write(&path, &written).unwrap();
            writeln!(wrong, "{name}: rewritten: read what changed, then run again without it")
                .unwrap();
        }
    }
    assert!(wrong.is_empty(), "\n{wrong}");
}

/// A piece of a script.
enum Part {
    Aside(String),
    Command(Command),
}

impl Part {
    fn aside(&self) -> &str {
        match self {
            Part::Aside(text) => text,
            Part::Command(command) => &command.typed,
        }
    }
}

/// A command with what it is given and what it must answer.
struct Command {
    line: usize,
    typed: String,
    given: Vec<String>,
    answer: String,
}

impl Command {
    fn write(&self, answer: &str, to: &mut String) {
        writeln!(to, "{}", self.typed).unwrap();
        for line in &self.given {
            writeln!(to, "  {line}").unwrap();
        }
        write!(to, "----\n{answer}").unwrap();
    }
}

fn parts(text: &str, name: &str) -> Vec<Part> {
    let mut parts = Vec::new();
    let mut lines = text.lines().enumerate().peekable();
    while let Some((number, line)) = lines.next() {
        if line.is_empty() || line.starts_with('#') {
            parts.push(Part::Aside(line.to_owned()));
            continue;
        }
        let at = number + 1;
        assert!(!line.starts_with(' '), "{name}:{at}: nothing that this could be given to");
        let mut given = Vec::new();
        while let Some((_, line)) = lines.next_if(|(_, line)| line.starts_with("  ")) {
            given.push(line[2..].to_owned());
        }
        let mut answer = String::new();
        if lines.next_if(|(_, line)| *line == "----").is_some() {
            while let Some((_, line)) = lines.next_if(|(_, line)| !line.is_empty()) {
                writeln!(answer, "{line}").unwrap();
            }
        }
        parts.push(Part::Command(Command { line: at, typed: line.to_owned(), given, answer }));
    }
    parts
}

fn diff(expected: &str, found: &str) -> String {
    let (expected, found): (Vec<_>, Vec<_>) = (expected.lines().collect(), found.lines().collect());
    let same = expected.iter().zip(&found).take_while(|(a, b)| a == b).count();
    let (expected_rest, found_rest) = (&expected[same..], &found[same..]);
    let backwards = expected_rest.iter().rev().zip(found_rest.iter().rev());
    let tail = backwards.take_while(|(a, b)| a == b).count();
    let mut shown = String::new();
    let mut show = |sign: char, lines: &[&str]| {
        for line in lines {
            writeln!(shown, "  {sign} {line}").unwrap();
        }
    };
    show(' ', &expected[..same]);
    show('-', &expected_rest[..expected_rest.len() - tail]);
    show('+', &found_rest[..found_rest.len() - tail]);
    show(' ', &expected_rest[expected_rest.len() - tail..]);
    shown
}

/// Where a script is played.
struct Stage {
    world: World,
    ingested: Vec<Vec<String>>,
}

impl Stage {
    fn new() -> Stage {
        Stage { world: World::new(), ingested: Vec::new() }
    }

    fn answer(&mut self, command: &Command) -> String {
        let words: Vec<&str> = command.typed.split_whitespace().collect();
        let mut answer = String::new();
        match words[0] {
            "ingest" | "check" => {
                let args = self.prepare(&words, &command.given);
                if words[0] == "ingest" {
                    self.ingested.push(args.clone());
                }
                self.batch(&args, &mut answer);
            }
            "file" => {
                let bytes = command.given.iter().flat_map(|line| raw(line, true));
                fs::write(self.world.root().join(words[1]), bytes.collect::<Vec<u8>>()).unwrap();
            }
            "replay" => {
                for args in &self.ingested {
                    self.batch(args, &mut answer);
                }
            }
            "report" | "late" | "held" | "sources" if !words.contains(&"--apply") => {
                let ran = self.world.run(&[&words[..], &["--json"]].concat());
                match ran.code {
                    Some(0) => told(words[0], &ran.json(), &mut answer),
                    _ => self.plain(&ran, &mut answer),
                }
            }
            "text" => {
                let ran = self.world.run(&[&["report"], &words[1..]].concat());
                let lines = ran.out.lines().skip_while(|line| !line.starts_with("Windows:"));
                let lines: Vec<&str> = lines.take_while(|line| !line.is_empty()).collect();
                self.plain(&Ran { out: lines.join("\n"), ..ran }, &mut answer);
            }
            "$" | "late" | "release" | "discard" => {
                let input: Vec<u8> =
                    command.given.iter().flat_map(|line| raw(line, true)).collect();
                let args = if words[0] == "$" { &words[1..] } else { &words[..] };
                let args: Vec<String> = args.iter().map(|word| unsqueezed(word)).collect();
                let ran = self.world.run_with_input(&args, &input);
                self.plain(&ran, &mut answer);
            }
            other => panic!("line {}: there is no {other}", command.line),
        }
        squeezed(&answer)
    }

    /// Makes the file that is to be ingested or checked; the arguments for that.
    fn prepare(&self, words: &[&str], given: &[String]) -> Vec<String> {
        let option = |word: &str| ["raw", "unended"].contains(&word);
        let args = words.iter().filter(|word| !option(word)).map(|word| (*word).to_owned());
        let file = self.world.root().join(words[1]);
        if words.contains(&"raw") {
            let unended = words.contains(&"unended");
            let last = given.len().saturating_sub(1);
            let lines = given.iter().enumerate();
            let bytes = lines.flat_map(|(at, line)| raw(line, !(unended && at == last)));
            fs::write(&file, bytes.collect::<Vec<u8>>()).unwrap();
        } else if !given.is_empty() {
            fs::write(&file, given.iter().map(|line| events(line)).collect::<String>()).unwrap();
        }
        args.chain(["--json".to_owned()]).collect()
    }

    fn batch(&self, args: &[String], answer: &mut String) {
        let ran = self.world.run(args);
        if !ran.out.starts_with('{') {
            return self.plain(&ran, answer);
        }
        let line = ran.json();
        match line.get("code") {
            None => {
                let head = match line["batch"].as_u64() {
                    Some(batch) => format!("batch {batch}"),
                    None => "would be".to_owned(),
                };
                let (watermark, closed) = (&line["watermark_ms"], &line["windows_closed"]);
                let (events, counts) = (&line["events"], counts(&line));
                writeln!(answer, "{head}: {events} = {counts}; W {watermark}, closed {closed}")
                    .unwrap();
            }
            Some(_) => refused(&line, answer),
        }
        if !ran.err.is_empty() {
            writeln!(answer, "! {}", self.neutral(&ran.err)).unwrap();
        }
        exit(&ran, answer);
    }

    fn plain(&self, ran: &Ran, answer: &mut String) {
        for line in self.neutral(&ran.out).lines() {
            writeln!(answer, "{}", if line.is_empty() { "." } else { line }).unwrap();
        }
        for line in self.neutral(&ran.err).lines() {
            writeln!(answer, "! {line}").unwrap();
        }
        exit(ran, answer);
    }

    /// Without what differs from run to run.
    fn neutral(&self, text: &str) -> String {
        let root = self.world.root().display().to_string();
        text.replace(&format!("{root}/spool/windowflow.db"), "DB").replace(&root, "ROOT")
    }
}

fn exit(ran: &Ran, answer: &mut String) {
    if ran.code != Some(0) {
        writeln!(answer, "exit {}", ran.code.map_or("by a signal".into(), |code| code.to_string()))
            .unwrap();
    }
}

/// The bytes that a line of a raw file stands for.
fn raw(line: &str, ended: bool) -> Vec<u8> {
    let line = unsqueezed(line);
    let mut parts = line.split("\\x");
    let mut bytes = parts.next().unwrap().as_bytes().to_vec();
    for part in parts {
        bytes.push(u8::from_str_radix(&part[..2], 16).unwrap());
        bytes.extend(part[2..].bytes());
    }
    bytes.extend(ended.then_some(b'\n'));
    bytes
}

/// The events, as NDJSON, that a line in short stands for.
fn events(line: &str) -> String {
    let (times, line) = match line.strip_prefix('*') {
        Some(rest) => {
            let (times, line) = rest.split_once(' ').unwrap();
            (times.parse().unwrap(), line)
        }
        None => (1, line),
    };
    let line = unsqueezed(line);
    let mut events = String::new();
    for number in 0..times {
        let line = if times == 1 { line.clone() } else { line.replace('#', &number.to_string()) };
        let words: Vec<&str> = line.split_whitespace().collect();
        let integer = |at: usize| -> i64 {
            words.get(at).and_then(|word| word.parse().ok()).unwrap_or_else(|| panic!("{line:?}"))
        };
        let mut event = json!({
            "id": words[0], "key": words[1], "timestamp_ms": integer(2), "value": integer(3),
        });
        if let Some(source) = words.get(4).filter(|source| **source != "-") {
            event["source"] = json!(source);
        }
        if let Some(version) = words.get(5) {
            event["producer_version"] = json!(version);
        }
        writeln!(events, "{event}").unwrap();
    }
    events
}

/// Puts N times `a` in place of every `{{a*N}}`.
fn unsqueezed(line: &str) -> String {
    let mut parts = line.split("{{");
    let mut long = parts.next().unwrap().to_owned();
    for part in parts {
        let (squeezed, rest) = part.split_once("}}").unwrap();
        let (what, times) = squeezed.rsplit_once('*').unwrap();
        long.push_str(&what.repeat(times.parse().unwrap()));
        long.push_str(rest);
    }
    long
}

/// Puts `{{a*N}}` in place of every long run of one letter, and escapes what would make the script
/// anything else than text.
fn squeezed(text: &str) -> String {
    let mut short = String::new();
    let mut letters = text.chars().peekable();
    while let Some(letter) = letters.next() {
        let mut times = 1;
        while letters.next_if_eq(&letter).is_some() {
            times += 1;
        }
        if letter.is_control() && letter != '\n' {
            write!(short, "{}", letter.escape_default().to_string().repeat(times)).unwrap();
        } else if times >= 20 && letter.is_alphanumeric() {
            write!(short, "{{{{{letter}*{times}}}}}").unwrap();
        } else {
            short.extend(std::iter::repeat_n(letter, times));
        }
    }
    short
}

const OUTCOMES: [&str; 5] = ["accepted", "late", "duplicate", "future", "expired"];

fn counts(of: &Value) -> String {
    let some: Vec<String> = OUTCOMES
        .iter()
        .map(|name| (of[*name].as_u64().unwrap(), name))
        .filter(|(count, _)| *count > 0)
        .map(|(count, name)| format!("{count} {name}"))
        .collect();
    if some.is_empty() { "none".to_owned() } else { some.join(" + ") }
}

fn refused(line: &Value, answer: &mut String) {
    let text = |name: &str| line[name].as_str().unwrap_or_default();
    write!(answer, "refused {}", text("code")).unwrap();
    for name in ["event_index", "event_id", "field", "line", "column", "byte"] {
        if !line[name].is_null() {
            write!(answer, " {name}={}", line[name]).unwrap();
        }
    }
    writeln!(answer, "\n  {}\n  hint: {}", text("message"), text("hint")).unwrap();
    if !line["other"].is_null() {
        write!(answer, "  other:").unwrap();
        for (name, value) in line["other"].as_object().unwrap() {
            write!(answer, " {name}={value}").unwrap();
        }
        writeln!(answer).unwrap();
    }
}

fn told(what: &str, report: &Value, answer: &mut String) {
    let watermark = &report["watermark_ms"];
    if what == "report" {
        let (totals, max) = (&report["totals"], &report["max_timestamp_ms"]);
        let (batches, refused) = (&totals["batches"], &totals["refused_batches"]);
        let counts = counts(totals);
        writeln!(
            answer,
            "W {watermark}, max {max}; batches {batches}, refused {refused}; {counts}"
        )
        .unwrap();
    }
    for source in report["sources"].as_array().into_iter().flatten() {
        let text = |name: &str| source[name].to_string();
        let (name, own, max) = (text("source"), text("watermark_ms"), text("max_timestamp_ms"));
        write!(answer, "source {name}: own W {own}, max {max}").unwrap();
        for (member, word) in [("declared", ", declared"), ("idle", ", idle")] {
            write!(answer, "{}", if source[member] == true { word } else { "" }).unwrap();
        }
        match source.get("holds_watermark") {
            Some(holds) => writeln!(answer, ", holds {holds}; {}", counts(source)).unwrap(),
            None => writeln!(answer).unwrap(),
        }
    }
    for version in report["producer_versions"].as_array().into_iter().flatten() {
        writeln!(answer, "version {}: {}", version["producer_version"], counts(version)).unwrap();
    }
    for row in report["windows"].as_array().into_iter().flatten() {
        let [key, start, end] = ["key", "window_start_ms", "window_end_ms"].map(|name| &row[name]);
        let [count, sum, min, max] = ["count", "sum", "min", "max"].map(|name| &row[name]);
        let mut state = row["state"].as_str().unwrap().to_owned();
        if row["revision"] != 0 {
            write!(state, " {}", row["revision"]).unwrap();
        }
        write!(
            answer,
            "window {key} [{start}, {end}) {state}: count {count}, sum {sum}, min {min}, max {max}"
        )
        .unwrap();
        match row["waiting_for"].as_array().unwrap().as_slice() {
            [] => writeln!(answer).unwrap(),
            waiting => writeln!(answer, "; waits for {}", json!(waiting)).unwrap(),
        }
    }
    for row in report["late"].as_array().into_iter().flatten() {
        let [id, key, at, value] = ["id", "key", "timestamp_ms", "value"].map(|name| &row[name]);
        let [start, then, source, batch] =
            ["window_start_ms", "watermark_ms", "source", "batch"].map(|name| &row[name]);
        writeln!(
            answer,
            "late {id} {key} {at} {value}: window {start}, W then {then}, source {source}, \
             batch {batch}{}",
            match &row["applied_in"] {
                Value::Null => String::new(),
                batch => format!(", applied in {batch}"),
            }
        )
        .unwrap();
    }
    for row in report["held"].as_array().into_iter().flatten() {
        let [id, key, at, value] = ["id", "key", "timestamp_ms", "value"].map(|name| &row[name]);
        let [source, file, batch, index] =
            ["source", "file", "batch", "event_index"].map(|name| &row[name]);
        assert!(row["ahead_ms"].as_i64().is_some_and(|ms| ms > 0), "{row}");
        writeln!(
            answer,
            "held {id} {key} {at} {value}: source {source}, {file}, batch {batch}, event {index}"
        )
        .unwrap();
    }
}
