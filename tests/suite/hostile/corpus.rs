//! The seeds of the fuzz targets, played on stable Rust: all as they are, and some mutants of each.
//! `WINDOWFLOW_REWRITE=1` writes the seeds of `decode` anew from the tables.

use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

use super::history::{Played, play};
use super::judge::judge;
use super::mutate::mutant;
use super::table::{batches, gzip, zstd};
use crate::model::Counts;
use crate::real::Real;

fn folder(target: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus").join(target)
}

/// The seeds of a target, with the names of their files.
pub fn seeds(target: &str) -> Vec<(String, Vec<u8>)> {
    let mut seeds: Vec<_> = fs::read_dir(folder(target))
        .unwrap()
        .map(|entry| entry.unwrap())
        .map(|entry| (entry.file_name().into_string().unwrap(), fs::read(entry.path()).unwrap()))
        .collect();
    seeds.sort();
    seeds
}

/// Tries one input, and says which when it fails.
fn attempt(name: &str, bytes: &[u8], mut target: impl FnMut(&[u8])) {
    let tried = catch_unwind(AssertUnwindSafe(|| target(bytes)));
    assert!(tried.is_ok(), "as told above: {name}: {}", bytes.escape_ascii());
}

/// Numbers from a seed (splitmix64).
fn numbers(mut state: u64) -> impl FnMut() -> u64 {
    move || {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }
}

#[test]
fn every_seed_of_decode_holds_and_so_do_mutants() {
    if std::env::var_os("WINDOWFLOW_REWRITE").is_some() {
        return write_seeds();
    }
    let seeds = seeds("decode");
    assert!(seeds.len() > 100, "{}", seeds.len());
    let mut next = numbers(1);
    for (name, seed) in &seeds {
        attempt(name, seed, |bytes| drop(judge(bytes)));
        for n in 0..8 {
            let other = &seeds[next() as usize % seeds.len()].1;
            let bytes = mutant(seed, other, &mut next);
            attempt(&format!("{name}, mutant {n}"), &bytes, |bytes| drop(judge(bytes)));
        }
    }
}

#[test]
fn every_seed_of_engine_holds_and_so_do_mutants() {
    let seeds = seeds("engine");
    assert!(seeds.len() > 20, "{}", seeds.len());
    let mut next = numbers(2);
    let (mut counts, mut refused, mut acts, mut revisions) = (Counts::default(), 0, 0, 0);
    let mut add = |played: Played| {
        counts.add(&played.counts);
        refused += played.refused;
        acts += played.acts;
        revisions += played.revisions;
    };
    for (name, seed) in &seeds {
        attempt(name, seed, |bytes| add(play(bytes, Real::memory)));
        attempt(name, seed, |bytes| add(play(bytes, Real::sqlite)));
        for n in 0..8 {
            let other = &seeds[next() as usize % seeds.len()].1;
            let mut bytes = mutant(seed, other, &mut next);
            bytes.truncate(4096);
            let name = format!("{name}, mutant {n}");
            attempt(&name, &bytes, |bytes| add(play(bytes, Real::memory)));
        }
    }
    // all that can happen, happens
    let Counts { accepted, late, duplicate, future, expired } = counts;
    let rare = late.min(duplicate).min(future).min(expired);
    let told = format!("{counts:?}, {refused} refused, {acts} acts, {revisions} revisions");
    assert!(accepted > 1000 && rare > 20, "{told}");
    assert!(refused > 100 && acts > 100 && revisions > 20, "{told}");
}

/// The small ones of the table of whole batches; every tenth packed.
fn write_seeds() {
    let folder = folder("decode");
    fs::create_dir_all(&folder).unwrap();
    for (n, row) in batches().into_iter().enumerate().filter(|(_, row)| row.bytes.len() < 400) {
        let bytes = match n % 20 {
            0 => gzip(&row.bytes),
            10 => zstd(&row.bytes),
            _ => row.bytes,
        };
        fs::write(folder.join(format!("batch-{n:03}")), bytes).unwrap();
    }
}
