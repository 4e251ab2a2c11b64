#!/usr/bin/env bash
# Cuts the power while the daemon works, and proves that nothing is lost or counted twice.
#
#   tests/power/run.sh [BINARY]     BINARY: target/release/windowflow
#   tests/power/run.sh --probe      only says whether it can be done here
#   tests/power/run.sh --prove      builds a daemon that moves files before the sync, in a copy of
#                                   the checkout, and shows that this very test catches it
#
# Needs root, loop devices, and the Debian packages e2fsprogs, xfsprogs and sqlite3. ROUNDS (100)
# says how many cuts on each file system, KINDS (ext4 xfs) on which; WINDOWFLOW_SEED plays a row of them again, as far as the
# machine is as fast. A round takes about half a second.
#
# A round: a spool with a store on a file system in a file, with files of 1 to 50 events and some
# that are refused. Half of them were synced by their producer, the others not. The daemon starts,
# and after a random time the file system is shut down without its log, as by a power cut. Then it
# is checked and mounted again, and must hold:
# - each file that its producer had synced lies in exactly one of inbox/, done/ and failed/, byte
#   for byte, and so does each whose events are counted;
# - of each file all events are counted or none: all if it lies in done/, none if in failed/;
# - each file in failed/ has its reason beside it, whole;
# - SQLite finds nothing wrong with the store.
# Then the daemon runs to its end, and all of that holds again with an empty inbox.
#
# Exit 0: all held. 1: something was lost. 77: this machine cannot do it, nothing was proved; where
# CI is set and there are root and loop devices, or a tool is missing, that is a 1.
set -euo pipefail

here=$(dirname "$(readlink -f "$0")")
repo=$(readlink -f "$here/../..")
rounds=${ROUNDS:-100}
read -ra kinds <<<"${KINDS:-ext4 xfs}"
seed=${WINDOWFLOW_SEED:-$$}
RANDOM=$seed
scratch=$(mktemp -d)
mount=$scratch/mount
# more than two groups
files=300

main() {
  trap 'status=$?; clean_up; exit $status' EXIT
  need_tools
  [ "${1:-}" != --probe ] || return 0
  make_pool
  if [ "${1:-}" = --prove ]; then
    prove
  else
    binary=$(readlink -f "${1:-$repo/target/release/windowflow}")
    [ -x "$binary" ] || { echo "no program at $binary: cargo build --release" >&2; exit 1; }
    local kind lost=0
    for kind in "${kinds[@]}"; do
      cuts "$kind" "$rounds"
      lost=$((lost + failures))
    done
    [ $lost -eq 0 ]
  fi
}

clean_up() {
  umount -q "$mount" 2>/dev/null || umount -q -l "$mount" 2>/dev/null || true
  rm -rf "$scratch"
}

need_tools() {
  local missing=() tool
  for tool in mkfs.ext4 mkfs.xfs xfs_io sqlite3; do
    command -v "$tool" >/dev/null || missing+=("$tool")
  done
  mkdir "$mount"
  truncate -s 64M "$scratch/probe"
  if [ ${#missing[@]} -eq 0 ] && mkfs.ext4 -qF "$scratch/probe" &&
    mount -o loop "$scratch/probe" "$mount" 2>/dev/null; then
    umount "$mount"
    rm "$scratch/probe"
    return
  fi
  echo "power cuts: need root, loop devices and ${missing[*]:-nothing else}" >&2
  if [ -n "${CI:-}" ]; then
    if [ ${#missing[@]} -gt 0 ] || { [ "$(id -u)" = 0 ] && [ -e /dev/loop0 ]; }; then
      echo "FAILED: all of this must be there where CI is set" >&2
      exit 1
    fi
  fi
  cat >&2 <<'END'
**********************************************************************************************
SKIPPED: power cuts were NOT tested, because this machine cannot do them (see above).
**********************************************************************************************
END
  exit 77
}

# The files that are dropped in each round, and what is expected of them: NAME EVENTS SUM HASH, with
# no events where it is to be refused. The key of each event is the name of its file.
make_pool() {
  local n e name events sum line folder
  mkdir -p "$scratch"/{synced,unsynced}
  for ((n = 0; n < files; n++)); do
    name=$(printf '%03d.ndjson' $n)
    events=$((1 + RANDOM % 50)) sum=0
    line=
    for ((e = 0; e < events; e++)); do
      line+="{\"id\":\"$n-$e\",\"key\":\"$name\",\"timestamp_ms\":$((n * 7)),\"value\":$e}"$'\n'
      sum=$((sum + e))
    done
    case $((n % 10)) in
      4) line="{" events=0 sum=0 ;;
      # contradicts the file before it
      7) line="{\"id\":\"$((n - 1))-0\",\"key\":\"$name\",\"timestamp_ms\":1,\"value\":1}"
        events=0 sum=0 ;;
    esac
    # by the third digit, so that both kinds are among the refused ones
    folder=$scratch/synced
    # the two of a conflict must both be there
    [ $((n / 3 % 2)) = 0 ] || [[ $n = *[67] ]] || folder=$scratch/unsynced
    printf %s "$line" >"$folder/$name"
    echo "$name $events $sum $(md5sum <"$folder/$name" | cut -d ' ' -f 1)" >>"$scratch/model"
  done
  printf '[inbox]\nsettle_ms = 0\n[daemon]\nlog = "error"\n' >"$scratch/config.toml"
}

# cuts KIND ROUNDS: sets `failures`
cuts() {
  local kind=$1 rounds_of=$2 round busy_ms from=$SECONDS interrupted=0 image=$scratch/image
  failures=0
  # the least that mkfs.xfs makes
  truncate -s 300M "$image"
  "mkfs.$kind" -q "-$([ "$kind" = xfs ] && echo f || echo F)" "$image"
  mount -o loop "$image" "$mount"
  # once without a cut: how long it takes
  fresh 0
  local before
  before=$(date +%s%N)
  drain "$mount/0" || { echo "FAILED: the daemon fails without any cut" >&2; exit 1; }
  busy_ms=$((($(date +%s%N) - before) / 1000000 + 1))
  for ((round = 1; round <= rounds_of; round++)); do
    fresh "$round"
    # behind its end, too
    cut_after $((RANDOM % (busy_ms * 5 / 4))) "$mount/$round"
    let_go
    check_file_system "$kind" "$image" || { failures=$((failures + 1)); break; }
    mount -o loop "$image" "$mount"
    [ -z "$(ls -A "$mount/$round/inbox")" ] || interrupted=$((interrupted + 1))
    if ! said=$(holds "$mount/$round" && drain "$mount/$round" && holds "$mount/$round" end); then
      failures=$((failures + 1))
      echo "FAILED: $kind, round $round of WINDOWFLOW_SEED=$seed:"
      printf '%s\n' "$said" | head -n 20 | sed 's/^/    /'
    fi
    [ "${stop_at_first:-}" != 1 ] || [ $failures -eq 0 ] || break
  done
  let_go
  rm "$image"
  [ $interrupted -gt $((rounds_of / 10)) ] || [ $failures -gt 0 ] || {
    echo "FAILED: only $interrupted of $rounds_of cuts came in time" >&2
    exit 1
  }
  [ "$round" -le "$rounds_of" ] || round=$rounds_of
  echo "$kind ($busy_ms ms without a cut): $round power cuts, $interrupted before the last file had" \
    "moved, $failures with a loss, $((SECONDS - from)) s"
}

# fresh ROUND: a spool with a store, and files in its inbox
fresh() {
  rm -rf "${mount:?}"/*
  mkdir -p "$mount/$1/inbox"
  "$binary" init --spool "$mount/$1" --window-ms 1000000 --lateness-ms 0 >/dev/null 2>&1
  cp "$scratch"/synced/* "$mount/$1/inbox/"
  sync -f "$mount"
  # these are as if their producer had never called fsync
  cp "$scratch"/unsynced/* "$mount/$1/inbox/"
}

# drain SPOOL: 65 says that files were refused, as some should be, if they were not before the cut
drain() {
  local status=0
  "$binary" run --spool "$1" --config "$scratch/config.toml" --once >"$scratch/said" 2>&1 ||
    status=$?
  [ $status -eq 0 ] || [ $status -eq 65 ] || {
    cat "$scratch/said"
    echo "exit code $status"
    return 1
  }
}

# cut_after MS SPOOL
cut_after() {
  "$binary" run --spool "$2" --config "$scratch/config.toml" --once >/dev/null 2>&1 &
  local pid=$!
  sleep "$(printf '0.%03d' "$1")"
  # no -f: what is only in the log of the file system is lost, too
  xfs_io -x -c shutdown "$mount"
  kill -9 $pid 2>/dev/null || true
  wait $pid 2>/dev/null || true
}

# The kernel may take a moment longer than the process to close its files.
let_go() {
  local try
  for ((try = 0; try < 100; try++)); do
    ! umount "$mount" 2>"$scratch/said" || return 0
    sleep 0.1
  done
  cat "$scratch/said" >&2
  return 1
}

check_file_system() {
  local status=0
  [ "$1" = ext4 ] || return 0
  fsck.ext4 -p "$2" >"$scratch/said" 2>&1 || status=$?
  [ $status -lt 4 ] || { cat "$scratch/said"; return 1; }
}

# holds SPOOL [end]: says what does not hold
holds() {
  local spool=$1 end=${2:-} name events sum hash found where folder
  local -A counted=() lies=()
  "$binary" report --spool "$spool" --format csv >"$scratch/report" || {
    echo 'no report'
    return 1
  }
  # columns by their names
  while read -r name events sum; do
    counted[$name]="$events $sum"
  done < <(awk -F, 'NR == 1 { for (i = 1; i <= NF; i++) at[$i] = i; next }
    { print $at["key"], $at["count"], $at["sum"] }' "$scratch/report")
  while read -r hash name; do
    folder=${name%%/*} name=${name##*/}
    lies[$name]+="$folder $hash "
  done < <(cd "$spool" && find inbox done failed -name '*.ndjson' -exec md5sum {} + \
    2>/dev/null)
  while read -r name events sum hash; do
    found=${counted[$name]:-} where=${lies[$name]:-}
    if [ -n "$found" ] && [ "$found" != "$events $sum" ]; then
      echo "$name: counted in part or twice: $found instead of $events $sum"
    elif [ -n "$found" ] || [ -e "$scratch/synced/$name" ]; then
      # counted, or durable before all: it is there, once and whole
      case $where in
        "inbox $hash " | "done $hash " | "failed $hash ") ;;
        *) echo "$name: lies in '$where', should have $hash; counted: ${found:-no}" ;;
      esac
    fi
    case $where in
      done*) [ -n "$found" ] || echo "$name: in done/ without its events" ;;
      failed*)
        [ -z "$found" ] || echo "$name: in failed/ with its events"
        [ "$(tail -c 2 "$spool/failed/$name.error.json" 2>&1)" = '}' ] ||
          echo "$name: no whole reason"
        ;;
    esac
    [ -n "$end" ] || continue
    [[ $where != inbox* ]] || echo "$name: still in the inbox at the end"
    # what was lost before it was counted is not asked for
    [ "$events" = 0 ] || [ -n "$found" ] || [ ! -e "$scratch/synced/$name" ] ||
      echo "$name: not counted at the end"
  done <"$scratch/model" >"$scratch/wrong"
  found=$(sqlite3 "$spool/windowflow.db" 'PRAGMA integrity_check' 2>&1)
  [ "$found" = ok ] || echo "the store is damaged: $found" >>"$scratch/wrong"
  [ -s "$scratch/wrong" ] || return 0
  cat "$scratch/wrong"
  return 1
}

# The test can see: a daemon without the sync before the moves loses events.
prove() {
  local copy=$scratch/copy file=src/pipeline/group_commit.rs
  mkdir "$copy"
  tar -C "$repo" --exclude=./target --exclude=./.git -cf - . | tar -C "$copy" -xf -
  sed -i -e 's/if let Err(failure) = self.sync(&mut group, pace) {/if let Err(failure) = Ok(()) {/' \
    -e 's/let mode = if is_last { Mode::Commit } else { Mode::Group };/let mode = Mode::Group;/' \
    "$copy/$file"
  [ "$(diff "$repo/$file" "$copy/$file" | grep -c '^>')" = 2 ] || {
    echo "FAILED: $file has changed: the two lines that make the mutant are not there" >&2
    exit 1
  }
  (cd "$copy" && RUSTFLAGS=-Awarnings CARGO_TARGET_DIR=$repo/target/power cargo build -q)
  binary=$repo/target/power/debug/windowflow
  local kind
  for kind in "${kinds[@]}"; do
    stop_at_first=1 cuts "$kind" "$rounds"
    [ $failures -gt 0 ] || { echo "FAILED: $kind: it was not seen" >&2; exit 1; }
  done
  echo 'seen, as it should be'
}

main "$@"
