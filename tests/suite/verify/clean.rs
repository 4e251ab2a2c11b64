//! Where nothing is wrong, nothing is found, and all is looked at.

use windowflow::engine::settings::LatePolicy;
use windowflow::query::verify::Verified;
use windowflow::store::Retention;

use crate::draw::{Draw, Step};
use crate::model::{Event, Model};
use crate::observed;
use crate::populated::{Populated, verify};
use crate::real::{Real, act_in_model};
use crate::together::rounds;

/// What was wrong, in words.
pub fn told(verified: &Verified) -> String {
    let checkup = &verified.checkup;
    let findings = checkup.findings().iter().map(|one| format!("{one:?}\n"));
    let gaps = checkup.gaps().iter().map(|gap| format!("not checked: {gap}\n"));
    findings.chain(gaps).collect()
}

pub fn figure(verified: &Verified, name: &str) -> u64 {
    let figures = verified.checkup.figures().iter();
    figures.filter(|(what, _)| *what == name).map(|(_, count)| count).sum()
}

#[test]
fn a_store_in_which_all_has_happened_is_right() {
    for policy in [LatePolicy::Aside, LatePolicy::Drop, LatePolicy::Correct] {
        let folder = tempfile::tempdir().unwrap();
        let mut all = Populated::begin(folder.path(), policy);
        all.fill(12, 120);
        let spool = all.close();
        let verified = verify(&spool).unwrap();
        assert_eq!(verified.checkup.total(), 0, "{policy:?}: {}", told(&verified));
        // the acts are batches, too; only where late events are kept is there one to apply
        let acts = if policy == LatePolicy::Aside { 8 } else { 7 };
        assert_eq!(figure(&verified, "batches_played_again"), 12 + acts, "{}", told(&verified));
        assert!(figure(&verified, "runs") > 1 && figure(&verified, "held_events") > 0);
        let keeps_late = policy == LatePolicy::Aside;
        assert_eq!(figure(&verified, "late_events") > 0, keeps_late);
        assert_eq!(figure(&verified, "revisions") > 0, policy != LatePolicy::Drop);
    }
}

/// All policies, horizons, clocks and acts, batches that are refused in between.
#[test]
fn random_histories_are_right() {
    let (mut batches, mut ids, mut runs, mut pruned) = (0, 0, 0, 0);
    for seed in 0..12 * rounds() as u64 {
        let mut draw = Draw::new(seed);
        let mut model = Model::new(draw.settings);
        let mut real = Real::sqlite_of_small_runs(draw.settings);
        let (mut batch, mut files) = (Vec::<Event>::new(), 0);
        for _ in 0..500 {
            match draw.step() {
                Step::Event(event) => batch.push(event),
                step => {
                    let expected = act_in_model(&mut model, &step, draw.now_ms);
                    assert_eq!(real.act(&step), expected, "seed {seed}: {step:?}");
                    draw.reach(model.state.watermark_ms);
                }
            }
            if !batch.is_empty() && draw.random.one_in(20) {
                let text = observed::ndjson(&batch);
                let _ = model.ingest("default", &batch, draw.now_ms);
                if real.ingest_as(&format!("{files}.ndjson"), &text).is_ok() {
                    real.put_into_done(&format!("{files}.ndjson"), &text);
                    files += 1;
                }
                batch.clear();
            }
        }
        let verified = verify(real.spool()).unwrap();
        assert_eq!(verified.checkup.total(), 0, "seed {seed}: {}", told(&verified));
        let last = verified.state.unwrap().0;
        assert_eq!(figure(&verified, "batches_played_again"), last, "seed {seed}");
        // of what retention removes nothing is missed, neither at once nor when more has come
        pruned += prune(&mut real, &mut draw);
        let verified = verify(real.spool()).unwrap();
        assert_eq!(verified.checkup.total(), 0, "seed {seed}, pruned: {}", told(&verified));
        batches += last;
        ids += figure(&verified, "ids");
        runs += figure(&verified, "runs");
    }
    assert!(pruned > 200, "{pruned} rows were removed");
    assert!(batches > 300 && ids > 1500 && runs > 20, "{batches} batches, {ids} ids, {runs} runs");
}

/// Removes all that may go, or a part of it, and takes in some more; how many rows went.
fn prune(real: &mut Real, draw: &mut Draw) -> u64 {
    let all = Some(i64::MAX);
    let some = |ms: Option<i64>, yes: bool| ms.filter(|_| yes);
    let windows_before_ms = some(all, draw.random.one_in(2));
    let what = Retention {
        ledger: true,
        windows_before_ms,
        late_before_ms: some(all, draw.random.one_in(2)),
        receipts_before_ms: some(all, draw.random.one_in(2)),
        moves_before_ms: windows_before_ms,
    };
    let gone = real.prune(&what);
    let mut batch = Vec::new();
    while batch.len() < 20 {
        if let Step::Event(event) = draw.step() {
            batch.push(event);
        }
    }
    let text = observed::ndjson(&batch);
    if real.ingest_as("last.ndjson", &text).is_ok() {
        real.put_into_done("last.ndjson", &text);
    }
    gone.windows + gone.late + gone.moves + gone.settled + gone.presence + gone.ids
}
