//! Runs the rows, one after the other, each on as many threads as it may have.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use crate::board::{Board, Score, say};
use crate::dice::Dice;
use crate::plan::Plan;
use crate::row::{Row, Scale, Trial, Tried};
use crate::rows::ROWS;

/// How many attempts are made between two notes of how far it came.
const ATTEMPTS_A_NOTE: u64 = 200;

/// How long the whole table may take as a smoke test, however slow the machine: a row that has used
/// its share says how far it came. An attempt that has begun is ended.
const SMOKE_LIMIT: Duration = Duration::from_secs(330);

/// How many shares of the time that is left a row may use: most rows need less than theirs.
const SHARES: u32 = 3;

/// Runs what is planned; whether nothing was violated, and nothing left out that should not be.
///
/// # Errors
/// When what an earlier run left cannot be read, or how far this one came cannot be kept.
pub fn all(plan: &Plan) -> Result<bool, String> {
    let rows: Vec<&Row> = ROWS.iter().copied().filter(|row| is_asked_for(plan, row)).collect();
    if plan.list {
        for row in &rows {
            say(&format!("{:>3}  {} ({})\n", row.number, row.fault, row.promise));
        }
        return Ok(true);
    }
    let mut board = match &plan.resume {
        Some(path) => Board::load(path, plan.seed)?,
        None => Board::default(),
    };
    if board.seed == 0 {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        board.seed = plan.seed.unwrap_or(now.as_secs());
    }
    let begun = Instant::now();
    for (at, row) in rows.iter().enumerate() {
        say(&format!("row {}: {}\n", row.number, row.fault));
        let share = smoke_share(begun.elapsed(), rows.len() - at);
        let limit = plan.limit().or((plan.scale() == Scale::Smoke).then_some(share));
        one(plan, row, limit, &mut board)?;
    }
    say(&board.show(&rows, plan.scale()));
    let scores = || rows.iter().filter_map(|row| board.rows.get(&row.number));
    // a row that could have been tried and was not is a hole in the proof
    let is_whole = std::env::var_os("CI").is_none() || scores().all(|one| one.unable.is_none());
    let bad = scores().filter(|score| !score.violations.is_empty()).count();
    let skipped = scores().filter(|score| score.unable.is_some()).count();
    let good = rows.len() - bad - skipped;
    say(&format!("\n{good} passed, {bad} failed, {skipped} skipped\n"));
    Ok(bad == 0 && is_whole)
}

fn is_asked_for(plan: &Plan, row: &Row) -> bool {
    (plan.row.is_empty() || plan.row.contains(&row.number))
        && plan.filter.as_ref().is_none_or(|filter| row.fault.contains(filter.as_str()))
}

/// How long the next row of a smoke test may take, of so many that are left.
fn smoke_share(elapsed: Duration, rows_left: usize) -> Duration {
    let left = SMOKE_LIMIT.saturating_sub(elapsed);
    let rows = u32::try_from(rows_left).unwrap_or(u32::MAX).max(1);
    // however late it is, each row makes its first attempts
    (left / rows * SHARES.min(rows)).max(Duration::from_secs(1))
}

/// Runs a row from where it stands to its end, or until the time is up.
fn one(plan: &Plan, row: &Row, limit: Option<Duration>, board: &mut Board) -> Result<(), String> {
    let mut score = board.rows.remove(&row.number).unwrap_or_default();
    score.next = score.next.max(plan.from);
    (score.unable, score.note, score.cut_short) = (None, None, None);
    let begun = Instant::now();
    match (row.begin)(&plan.scale()) {
        Err(why) => score.unable = Some(why.0),
        Ok(trial) => {
            let figure = match plan.scale() {
                Scale::Smoke => row.figures.smoke,
                Scale::Full => row.figures.full,
                Scale::Soak => row.figures.soak,
            };
            let end = plan.count.map_or(figure, |count| plan.from + count);
            let end = trial.attempts().map_or(end, |most| end.min(most));
            // what an attempt needs was made in its own time
            let begun = Instant::now();
            let over = || limit.is_some_and(|limit| begun.elapsed() >= limit);
            while score.next < end && !over() {
                let to = end.min(score.next + ATTEMPTS_A_NOTE);
                some(row, trial.as_ref(), board.seed, to, &mut score, &over);
                if let Some(path) = &plan.resume {
                    board.rows.insert(row.number, score.clone());
                    board.save(path)?;
                }
            }
            score.note = trial.note();
            if score.next < end {
                score.cut_short =
                    Some(format!("{} of {end} attempts, then time was up", score.next));
            }
        }
    }
    score.took_s += begun.elapsed().as_secs_f64();
    board.rows.insert(row.number, score);
    plan.resume.as_ref().map_or(Ok(()), |path| board.save(path))
}

/// Makes the attempts up to `to`, side by side.
fn some(
    row: &Row,
    trial: &dyn Trial,
    seed: u64,
    to: u64,
    score: &mut Score,
    over: &(dyn Fn() -> bool + Sync),
) {
    let next = AtomicU64::new(score.next);
    let ended = AtomicBool::new(false);
    let found = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..row.lanes.max(1) {
            scope.spawn(|| {
                loop {
                    if over() {
                        ended.store(true, Ordering::Relaxed);
                    }
                    if ended.load(Ordering::Relaxed) {
                        break;
                    }
                    let n = next.fetch_add(1, Ordering::Relaxed);
                    if n >= to {
                        break;
                    }
                    let result = attempt(row, trial, seed, n);
                    let of = trial.what(n);
                    let result = result.map_err(|what| match of.is_empty() {
                        true => what,
                        false => format!("{of}: {what}"),
                    });
                    if let Err(what) = &result {
                        say(&format!("row {}, attempt {n}: {what}\n", row.number));
                    }
                    found.lock().unwrap().push((n, result));
                }
            });
        }
    });
    for (n, result) in found.into_inner().unwrap() {
        score.next = score.next.max(n + 1);
        let (tried, struck) = result.as_ref().map_or((1, 1), |result| result.figures());
        (score.tried, score.struck) = (score.tried + tried, score.struck + struck);
        if let Err(what) = result {
            score.violations.insert(n, what);
        }
    }
}

/// One attempt; a panic is a violation, and its words are what it found.
fn attempt(row: &Row, trial: &dyn Trial, seed: u64, n: u64) -> Result<Tried, String> {
    let dice = Dice::of_attempt(seed, row.number, n);
    catch_unwind(AssertUnwindSafe(|| trial.attempt(n, dice))).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        Err(text.or(panic.downcast_ref::<&str>().copied()).unwrap_or("a panic").to_owned())
    })
}
