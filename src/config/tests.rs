//! What a file may say, and how each fault in one is named.

use super::*;

const EXAMPLE: &str = include_str!("../../spool-example/windowflow.toml");

fn parse(text: &str) -> Result<Config, ConfigError> {
    Config::parse(text, Path::new("/etc/windowflow"))
}

fn parsed(text: &str) -> Config {
    parse(text).unwrap_or_else(|error| panic!("{error} in:\n{text}"))
}

#[track_caller]
fn refused(text: &str) -> String {
    match parse(text) {
        Ok(config) => panic!("accepted as {config:?}:\n{text}"),
        Err(error) => error.to_string(),
    }
}

/// The example with every key that it shows set.
fn uncommented() -> String {
    let is_key = |line: &str| {
        line.split_once(" = ").is_some_and(|(key, _)| {
            !key.is_empty() && key.chars().all(|c| c.is_ascii_lowercase() || c == '_')
        })
    };
    let lines = EXAMPLE.lines().map(|line| match line.strip_prefix("# ") {
        Some(rest) if is_key(rest) => rest,
        _ => line,
    });
    lines.map(|line| format!("{line}\n")).collect()
}

/// Each key of the example: its table, its name, and the comment before it as one line.
fn described() -> Vec<(String, String, String)> {
    let (mut table, mut comment, mut found) = (String::new(), String::new(), Vec::new());
    let text = uncommented();
    for line in text.lines() {
        if let Some(words) = line.strip_prefix("# ") {
            comment = format!("{comment} {words}");
        } else if let Some((key, _)) = line.split_once(" = ") {
            found.push((table.clone(), key.to_owned(), std::mem::take(&mut comment)));
        } else {
            if let Some(name) = line.strip_prefix('[') {
                table = name.trim_end_matches(']').to_owned();
            }
            comment.clear();
        }
    }
    found
}

fn with(table: &str, key: &str, value: &str) -> Result<Config, ConfigError> {
    let others = match key {
        "window_ms" => "lateness_ms = 1\n",
        "lateness_ms" => "window_ms = 1\n",
        // so that the least horizon fits
        "dedup_horizon_ms" => "window_ms = 1\nlateness_ms = 0\n",
        _ if table == "window" => "window_ms = 1\nlateness_ms = 1\n",
        "backoff_min_ms" => "backoff_max_ms = 3600000\n",
        "backoff_max_ms" => "backoff_min_ms = 10\n",
        _ => "",
    };
    let head = if table.is_empty() { String::new() } else { format!("[{table}]\n") };
    parse(&format!("{head}{others}{key} = {value}\n"))
}

#[test]
fn an_empty_file_says_the_defaults() {
    assert_eq!(parsed(""), Config::default());
    assert_eq!(parsed("\u{feff}[inbox]\n"), Config::default());
}

#[test]
fn the_example_is_accepted_as_it_is_and_says_only_what_it_must() {
    let window = Some(Settings::new(1000, 500).unwrap());
    assert_eq!(parsed(EXAMPLE), Config { window, ..Config::default() });
}

#[test]
fn the_example_shows_the_defaults() {
    let shown = parsed(&uncommented());
    let as_it_is = parsed(EXAMPLE);
    assert!(shown.spool.is_some() && shown.db.is_some());
    assert_eq!(Config { spool: None, db: None, ..shown }, as_it_is);
}

#[test]
fn the_example_names_every_key_and_no_other() {
    let mut reader = TableReader::new("", Path::new("/"));
    let empty = DeTable::parse("").unwrap();
    Config::read(&mut reader, empty.get_ref());
    let tables = ["window", "inbox", "sources", "limits", "retention", "daemon"];
    let mut known: Vec<(String, String)> = reader
        .known()
        .filter(|(_, key)| !tables.contains(key))
        .map(|(table, key)| (table.to_owned(), key.to_owned()))
        .collect();
    let mut shown: Vec<(String, String)> =
        described().into_iter().map(|(table, key, _)| (table, key)).collect();
    known.sort_unstable();
    shown.sort_unstable();
    assert_eq!(shown, known);
}

#[test]
fn the_example_names_the_true_range_of_every_number() {
    let mut ranges = 0;
    for (table, key, comment) in described() {
        let Some((_, range)) = comment.split_once("s, from ") else { continue };
        let numbers: Vec<u64> = range
            .split([' ', ';', ',', '.'])
            .filter_map(|word| word.parse().ok())
            .take(2)
            .collect();
        let [least, greatest] = numbers[..] else { panic!("{key}: no range in {comment}") };
        for number in [least, greatest] {
            assert!(with(&table, &key, &number.to_string()).is_ok(), "{key} = {number}");
        }
        for number in [i128::from(least) - 1, i128::from(greatest) + 1] {
            let error = with(&table, &key, &number.to_string()).unwrap_err().to_string();
            let range = format!("expected a whole number from {least} to {greatest}");
            assert!(error.contains(&range), "{key} = {number}: {error}");
        }
        ranges += 1;
    }
    assert_eq!(ranges, 21);
}

#[test]
fn the_example_names_every_choice_and_every_default() {
    let mut choices = 0;
    for (table, key, comment) in described() {
        if let Some((_, default)) = comment.split_once("; default ") {
            let default = default.split([' ', '.']).next().unwrap();
            let shown = uncommented();
            assert!(shown.contains(&format!("\n{key} = {default}\n")), "{key}: {default}");
        } else {
            assert!(comment.contains("required") || comment.contains("no default"), "{comment}");
        }
        let Some((_, names)) = comment.split_once("One of ") else { continue };
        let names = names.split(';').next().unwrap();
        for name in names.split(", ") {
            assert!(with(&table, &key, name).is_ok(), "{key} = {name}");
        }
        let error = with(&table, &key, "\"none of them\"").unwrap_err().to_string();
        let expected = format!("expected one of {names}, found the string \"none of them\"");
        assert!(error.contains(&expected), "{error}");
        choices += 1;
    }
    assert_eq!(choices, 4);
}

#[test]
fn all_keys_reach_their_fields() {
    let text = "spool = 'spool'\ndb = '/var/lib/w.db'\n\
        [window]\nwindow_ms = 60_000\nlateness_ms = 0\nlate_rule = 'event'\nlate_policy = 'drop'\n\
        max_future_ms = 'off'\ndedup_horizon_ms = 60_000\n\
        [sources]\nidle_timeout_ms = 1000\ndeclared = ['press-1', 'press-2']\nmax = 7\n\
         accept_new = false\n\
         [inbox]\nsettle_ms = 1\nrescan_ms = 200\norder = 'mtime'\nignore = ['_SUCCESS', '*.md5']\n\
        [limits]\nmax_event_bytes = 65\nmax_file_bytes = 66\nmax_inflated_bytes = 0x43\n\
        [retention]\nwindows_days = 1\nlate_days = 2\nreceipts_days = 6\nreports_days = 4\n\
        done_days = 5\nfailed_days = 7\nfailed_max_bytes = 8\n\
        [daemon]\nstop_grace_ms = 2\nbackoff_min_ms = 30\nbackoff_max_ms = 40\n\
        busy_timeout_ms = 5\nallow_network_fs = true\nlog = 'trace'\n";
    let expected = Config {
        spool: Some(PathBuf::from("/etc/windowflow/spool")),
        db: Some(PathBuf::from("/var/lib/w.db")),
        window: Some(
            Settings::new(60_000, 0)
                .unwrap()
                .with_late(LateRule::Event, LatePolicy::Drop)
                .with_max_future_ms(None)
                .and_then(|settings| settings.with_dedup_horizon_ms(Some(60_000)))
                .unwrap(),
        ),
        inbox: InboxConfig {
            settle_ms: 1,
            rescan_ms: 200,
            order: InboxOrder::Mtime,
            ignore: vec!["_SUCCESS".to_owned(), "*.md5".to_owned()],
        },
        sources: SourcesConfig {
            idle_timeout_ms: Some(1000),
            declared: vec!["press-1".to_owned(), "press-2".to_owned()],
            max: 7,
            accept_new: false,
        },
        retention: RetentionConfig {
            windows_days: Some(1),
            late_days: Some(2),
            receipts_days: Some(6),
            reports_days: Some(4),
            done_days: Some(5),
            failed_days: Some(7),
            failed_max_bytes: Some(8),
        },
        limits: LimitsConfig {
            max_event_bytes: 65,
            max_file_bytes: Some(66),
            max_inflated_bytes: 67,
        },
        daemon: DaemonConfig {
            stop_grace_ms: 2,
            backoff_min_ms: 30,
            backoff_max_ms: 40,
            busy_timeout_ms: 5,
            allow_network_fs: true,
            log: Level::Trace,
        },
    };
    assert_eq!(parsed(text), expected);
}

#[test]
fn a_retention_that_would_bite_is_refused_when_it_is_read() {
    let error = refused("[retention]\nreceipts_days = 3\ndone_days = 4\n");
    assert!(error.contains("retention.done_days: expected at most receipts_days"), "{error}");
    assert_eq!(parsed("[retention]\ndone_days = 4\n").retention.done_days, Some(4));
    let correct = "[window]\nwindow_ms = 1\nlateness_ms = 1\nlate_policy = 'correct'\n";
    let error = refused(&format!("{correct}[retention]\nwindows_days = 4\n"));
    assert!(error.contains("next revision"), "{error}");
    parsed(&format!("{correct}dedup_horizon_ms = 9\n[retention]\nwindows_days = 4\n"));
}

#[test]
fn a_wrong_value_is_named_with_place_key_expected_and_found() {
    let cases = [
        (
            "[inbox]\n  settle_ms = \"1s\"",
            "line 2, column 15: inbox.settle_ms: expected a whole number from 0 to 3600000, found \
             the string \"1s\"",
        ),
        (
            "[inbox]\nrescan_ms = 99",
            "line 2, column 13: inbox.rescan_ms: expected a whole number from 100 to 3600000, \
             found the integer 99",
        ),
        (
            "[inbox]\nsettle_ms = -1",
            "line 2, column 13: inbox.settle_ms: expected a whole number from 0 to 3600000, found \
             the integer -1",
        ),
        (
            "[inbox]\nsettle_ms = 1.0",
            "line 2, column 13: inbox.settle_ms: expected a whole number from 0 to 3600000, found \
             the float 1.0",
        ),
        (
            "inbox.order = 'Name'",
            "line 1, column 15: inbox.order: expected one of \"name\", \"mtime\", found the string \
             'Name'",
        ),
        (
            "[inbox]\nignore = ['*.md5', '[a']",
            "line 2, column 10: inbox.ignore: expected patterns for names, such as \"*.md5\", found \
             \"[a\": unclosed character class; missing ']'",
        ),
        (
            "[inbox]\nignore = '*.md5'",
            "line 2, column 10: inbox.ignore: expected patterns for names in brackets, each in \
             quotes, found the string '*.md5'",
        ),
        (
            "[limits]\nmax_file_bytes = 'no'",
            "line 2, column 18: limits.max_file_bytes: expected a whole number from 1 to \
             9223372036854775807 or \"off\", found the string 'no'",
        ),
        (
            "[daemon]\nallow_network_fs = 'yes'",
            "line 2, column 20: daemon.allow_network_fs: expected true or false, without quotes, \
             found the string 'yes'",
        ),
        ("spool = 5", "line 1, column 9: spool: expected a path in quotes, found the integer 5"),
        ("db = ''", "line 1, column 6: db: expected a path in quotes, found the string ''"),
        (
            "db = '~/w.db'",
            "line 1, column 6: db: expected a path in full (~ means nothing here), found the \
             string '~/w.db'",
        ),
        ("inbox = 5", "line 1, column 9: inbox: expected a table, [inbox], found the integer 5"),
        (
            "[[daemon]]\nlog = 'info'",
            "line 1, column 1: daemon: expected a table, [daemon], found an array",
        ),
    ];
    for (text, expected) in cases {
        assert_eq!(refused(text), expected);
    }
}

#[test]
fn an_unknown_key_is_refused_wherever_it_stands_and_the_nearest_is_named() {
    assert_eq!(
        refused("[inbox]\nsettel_ms = 5"),
        "line 2, column 1: inbox.settel_ms: unknown key: did you mean settle_ms?; known in [inbox] \
         are settle_ms, rescan_ms, order, ignore"
    );
    assert_eq!(
        refused("spoool = 'x'"),
        "line 1, column 1: spoool: unknown key: did you mean spool?; known here are spool, db, \
         window, inbox, sources, limits, retention, daemon"
    );
    assert_eq!(
        refused("settle_ms = 5"),
        "line 1, column 1: settle_ms: unknown key: it stands in [inbox]; known here are spool, db, \
         window, inbox, sources, limits, retention, daemon"
    );
    let misplaced = refused("[daemon]\ndb = 'x'");
    assert!(misplaced.contains("it stands at the top, before the first table"), "{misplaced}");
    let strange = refused("[\"\\u001b[2J\"]\nx = 1");
    assert_eq!(
        strange,
        "line 1, column 2: \"\\u{1b}[2J\": unknown key; known here are spool, db, window, inbox, sources, \
         limits, retention, daemon"
    );
}

#[test]
fn everything_that_is_wrong_is_named_at_once_in_the_order_of_the_file() {
    let error = refused("x = 1\n[daemon]\nlog = 'loud'\n[inbox]\norder = 1\ny = 2\n");
    let keys: Vec<&str> = error.lines().map(|line| line.split(": ").nth(1).unwrap()).collect();
    assert_eq!(keys, ["x", "daemon.log", "inbox.order", "inbox.y"]);
}

#[test]
fn the_window_table_is_whole_or_absent() {
    assert_eq!(parsed("[inbox]").window, None);
    assert_eq!(
        refused("[window]\nwindow_ms = 1000"),
        "line 1, column 2: window.lateness_ms: missing: [window] needs it, a whole number from 0 \
         to 9223372036854775807"
    );
    assert!(refused("[window]").contains("window.window_ms: missing"));
    assert!(refused("[window]\nwindow_ms = 0\nlateness_ms = 0").contains("found the integer 0"));
}

#[test]
fn a_horizon_that_would_forget_what_still_counts_is_refused_in_its_place() {
    let window = "[window]\nwindow_ms = 1000\nlateness_ms = 500\n";
    let horizon_ms = |text: &str| parsed(text).window.unwrap().dedup_horizon_ms();
    assert_eq!(horizon_ms(window), None);
    assert_eq!(horizon_ms(&format!("{window}dedup_horizon_ms = 'off'")), None);
    assert_eq!(horizon_ms(&format!("{window}dedup_horizon_ms = 1500")), Some(1500));
    assert_eq!(
        refused(&format!("{window}dedup_horizon_ms = 1499")),
        "line 4, column 20: window.dedup_horizon_ms: expected at least window_ms + lateness_ms, \
         which is 1500 (a repeat could be counted twice in a window that is still open), found the \
         integer 1499"
    );
}

#[test]
fn declared_sources_are_names() {
    for value in ["'press-1'", "[1]", "['']", "[' ']", "[['a']]"] {
        let error = refused(&format!("[sources]\ndeclared = {value}"));
        assert!(error.contains("sources.declared: expected names of sources"), "{error}");
    }
}

#[test]
fn pauses_that_contradict_each_other_are_refused_defaults_included() {
    assert_eq!(
        refused("[daemon]\nbackoff_min_ms = 30001"),
        "line 2, column 18: daemon.backoff_min_ms: expected at most backoff_max_ms, which is \
         30000, found the integer 30001"
    );
    assert_eq!(
        refused("[daemon]\nbackoff_max_ms = 249"),
        "line 2, column 18: daemon.backoff_max_ms: expected at least backoff_min_ms, which is 250, \
         found the integer 249"
    );
    parsed("[daemon]\nbackoff_min_ms = 500\nbackoff_max_ms = 500");
}

#[test]
fn a_store_among_the_work_is_refused() {
    for folder in WORK_FOLDERS {
        let error = refused(&format!("spool = 'spool'\ndb = 'spool/{folder}/w.db'"));
        let expected = format!("expected a path outside /etc/windowflow/spool/{folder}, where");
        assert!(error.contains(&expected), "{error}");
    }
    parsed("spool = 'spool'\ndb = 'spool/inbox.db'");
}

#[test]
fn what_is_no_toml_is_named_with_its_place() {
    for (text, place) in [
        ("spool = \n", "line 1, column "),
        ("[inbox]\nsettle_ms = 1\nsettle_ms = 2\n", "line 3, column 1: "),
        ("[inbox]\n[inbox]\n", "line 2, column "),
        ("settle_ms: 5\n", "line 1, column "),
        ("{\"spool\": \"x\"}", "line 1, column 1: "),
    ] {
        let error = refused(text);
        assert!(error.starts_with(place) && error.contains("this is no TOML: "), "{error}");
    }
}

#[test]
fn a_file_is_loaded_from_where_it_lies_and_named_in_every_fault() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("w.toml");
    fs::write(&path, "spool = 'spool'\n").unwrap();
    let config = Config::load(&path).unwrap();
    assert_eq!(config.spool, Some(folder.path().join("spool")));
    assert_eq!(config.db_path(), Some(folder.path().join("spool/windowflow.db")));

    fs::write(&path, "# gr\u{fc}n\nlog = 1\nx = 2\n").unwrap();
    let error = Config::load(&path).unwrap_err().to_string();
    assert_eq!(error.lines().count(), 2);
    for (line, text) in error.lines().enumerate() {
        let start = format!("{path:?}, line {}, column 1: ", line + 2);
        assert!(text.starts_with(&start), "{text}");
    }

    fs::write(&path, b"spool = 'a'\ndb = 'gr\xfcn'\n").unwrap();
    let error = Config::load(&path).unwrap_err().to_string();
    let fault = "line 2, column 9: expected UTF-8, found the byte 0xfc: save the file as UTF-8";
    assert_eq!(error, format!("{path:?}, {fault}"));
}

#[test]
fn a_file_that_is_not_there_is_said_not_to_be() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("none.toml");
    let error = Config::load(&path).unwrap_err().to_string();
    assert_eq!(error, format!("there is no configuration file {path:?}: check the path"));
    let error = Config::load(folder.path()).unwrap_err().to_string();
    assert!(error.contains("cannot be read: "), "{error}");
}

#[test]
fn what_cannot_change_while_running_is_named() {
    let old = parsed(&uncommented());
    assert_eq!(old.fixed_differences(&old), [""; 0]);
    let changed = "spool = 'other'\n[window]\nwindow_ms = 1000\nlateness_ms = 501\n\
                   late_policy = 'drop'\n[daemon]\nallow_network_fs = true\nlog = 'debug'\n\
                   [inbox]\nsettle_ms = 5\n";
    let keys =
        ["spool", "db", "window.lateness_ms", "window.late_policy", "daemon.allow_network_fs"];
    assert_eq!(old.fixed_differences(&parsed(changed)), keys);
    let without = Config { window: None, ..old.clone() };
    assert_eq!(old.fixed_differences(&without), ["window"]);
    assert_eq!(without.fixed_differences(&without), [""; 0]);
}
