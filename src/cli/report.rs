//! `report`, `late` and `sources`: what the store knows, from one consistent snapshot.

use std::io::Write;

use super::args::{Filters, Late, Report, Sources, Where};
use super::{CommandError, Exit, asked_by, results};
use crate::daemon::state::DaemonState;
use crate::engine::{Known, Presence};
use crate::model::clock::Clock;
use crate::pipeline::admin_batch::{self, Asked};
use crate::query::report::{self, Filter, Format, ReportError, WindowState};
use crate::spool::lock;
use crate::spool::name::shown_path;
use crate::store::sqlite::{SqliteSnapshot, SqliteStore};
use crate::store::{Span, Store};

pub(super) fn run(at: &Where, command: &Report) -> Result<Exit, CommandError> {
    let mut filter = filter(&command.filters)?;
    filter.state = command.state.as_deref().and_then(WindowState::from_name);
    let format = format(at, command.format.as_deref());
    let mut out = results();
    let state = running(at);
    let resting = state.as_ref().and_then(DaemonState::resting_json);
    let moment = (Clock::System.now_ms(), resting.as_ref());
    report::write_with_resting(&snapshot(at)?, format, &filter, moment, &mut out)?;
    out.flush()?;
    Ok(Exit::Done)
}

/// What the daemon says of itself that runs on the spool of this store; none when none does.
fn running(at: &Where) -> Option<DaemonState> {
    let peek = lock::peek(&at.spool().ok()?).ok()?;
    let state: DaemonState = serde_json::from_slice(&peek.state.filter(|_| peek.held)?).ok()?;
    let is_of_it = at.db().is_ok_and(|db| state.db == shown_path(&db));
    is_of_it.then_some(state)
}

pub(super) fn late(at: &Where, command: &Late) -> Result<Exit, CommandError> {
    let filter = filter(&command.filters)?;
    let mut out = results();
    let format = format(at, command.format.as_deref());
    report::write_late(&snapshot(at)?, format, &filter, &mut out)?;
    out.flush()?;
    Ok(Exit::Done)
}

pub(super) fn sources(at: &Where, command: &Sources) -> Result<Exit, CommandError> {
    let acts = [(&command.declare, Presence::Declared), (&command.retire, Presence::Retired)];
    if acts.iter().any(|(names, _)| !names.is_empty()) {
        let mut store = at.open()?;
        refuse_unknown(&mut store, &command.retire)?;
        let by = asked_by();
        let asked = Asked { by: &by, reason: command.reason.as_deref() };
        for (names, presence) in acts.into_iter().filter(|(names, _)| !names.is_empty()) {
            let names: Vec<&str> = names.iter().map(String::as_str).collect();
            admin_batch::change_presence(&mut store, &names, presence, asked)?;
        }
    }
    let mut out = results();
    let write = if command.keys { report::write_accounts } else { report::write_sources };
    write(&snapshot(at)?, at.json, &mut out)?;
    out.flush()?;
    Ok(Exit::Done)
}

/// What the store has never heard of cannot be retired: mostly it is a slip.
fn refuse_unknown(store: &mut SqliteStore, names: &[String]) -> Result<(), CommandError> {
    let asked: Vec<&str> = names.iter().map(String::as_str).collect();
    let known = store.known(&asked)?;
    match names.iter().zip(known).find(|(_, known)| *known == Known::default()) {
        None => Ok(()),
        Some((name, _)) => Err(CommandError::new(
            Exit::Missing,
            format!(
                "no source is named {}, so nothing was done; see: windowflow sources",
                report::shown(name)
            ),
        )),
    }
}

pub(super) fn snapshot(at: &Where) -> Result<SqliteSnapshot, CommandError> {
    Ok(SqliteStore::snapshot(&at.db()?, at.options()?)?)
}

fn format(at: &Where, named: Option<&str>) -> Format {
    let default = if at.json { Format::Json } else { Format::Text };
    named.and_then(Format::from_name).unwrap_or(default)
}

pub(super) fn filter(given: &Filters) -> Result<Filter, CommandError> {
    let key = given.key.as_deref().map(Filter::key_glob).transpose();
    let key = key.map_err(|error| CommandError::new(Exit::Usage, error.to_string()))?;
    Ok(Filter { key, span: Span { from_ms: given.from_ms, to_ms: given.to_ms }, state: None })
}

impl From<ReportError> for CommandError {
    fn from(error: ReportError) -> CommandError {
        match error {
            ReportError::Store(error) => CommandError::from(error),
            ReportError::Write(error) => CommandError::from(error),
        }
    }
}
