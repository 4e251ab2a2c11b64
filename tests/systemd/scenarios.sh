# shellcheck shell=bash
# The scenarios of run.sh, in the order in which they run. Each starts in a fresh world: installed,
# stopped, nothing in the spool, no store.
#
# The spool's path holds no space, and what stands in single quotes is expanded in the box.
# shellcheck disable=SC2016,SC2086,SC2154

scenario_files_are_clean() {
  local said
  said=$(box systemd-analyze verify /usr/lib/systemd/system/windowflow.service 2>&1) || fail "$said"
  expect "what systemd-analyze verify says" "" "$said"
  expect folders '711 windowflow windowflow .
3730 windowflow windowflow-drop inbox
750 windowflow windowflow done
750 windowflow windowflow failed
750 windowflow windowflow reports' \
    "$(box sh -c "cd $spool && stat -c '%a %U %G %n' . inbox done failed reports")"
}

scenario_exposure_is_at_most_1_0() {
  local score
  score=$(box systemd-analyze security windowflow.service | grep -oE 'service: [0-9]+\.[0-9]' |
    cut -d' ' -f2)
  note "exposure $score"
  awk -v score="$score" 'BEGIN { exit !(score != "" && score + 0 <= 1.0) }' ||
    fail "exposure '$score' is more than 1.0"
}

scenario_case_103_start_is_ready_within_2_s() {
  local from to
  batch early 100 | drop alice early.ndjson
  box systemctl start windowflow
  expect ActiveState active "$(unit ActiveState)"
  from=$(unit InactiveExitTimestampMonotonic)
  to=$(unit ActiveEnterTimestampMonotonic)
  [ $((to - from)) -lt 2000000 ] || fail "READY after $((to - from)) us"
  note "READY after $(((to - from) / 1000)) ms"
  within 30 "what lay there at start is taken" in_folder done/early.ndjson
  expect accepted 100 "$(total accepted)"
  expect "status text is set" yes "$([ -n "$(unit StatusText)" ] && echo yes)"
}

scenario_a_member_drops_by_rename() {
  box systemctl start windowflow
  batch renamed 50 | drop alice renamed.ndjson
  within 30 "renamed.ndjson is done" in_folder done/renamed.ndjson
  expect accepted 50 "$(total accepted)"
  inbox_is_empty || fail "the inbox holds $(names_in inbox)"
}

# The producer pauses for longer than any settle time: only the kernel can tell that the file isn't
# complete, and under this unit it does. That time has passed is shown by files that were written
# in place later, settled, and were taken.
scenario_a_member_writes_in_place_and_pauses() {
  local n
  box systemctl start windowflow
  as alice 'exec >slow.ndjson; printf "%s\n" "$1"
    while [ ! -e /srv/open/go-on ]; do sleep 0.05; done
    printf "%s\n" "$2"' "$(batch first 10)" "$(batch second 10)" &
  within 30 "the first half is there" box test -s $spool/inbox/slow.ndjson
  for n in 1 2 3; do
      as bob 'printf "%s\n" "$2" >"$1"' "quick-$n.ndjson" "$(batch "quick-$n" 1)"
    within 30 "quick-$n.ndjson is done" in_folder "done/quick-$n.ndjson"
  done
  expect "accepted while the writer pauses" 3 "$(total accepted)"
  box test -e $spool/inbox/slow.ndjson || fail "the half file was taken"
  as alice ': >/srv/open/go-on'
  wait $!
  within 30 "slow.ndjson is done" in_folder done/slow.ndjson
  expect accepted 23 "$(total accepted)"
  expect "names in failed/" "" "$(names_in failed)"
  box rm /srv/open/go-on
}

scenario_a_stranger_cannot_drop() {
  box systemctl start windowflow
  expect_denied mallory ': >stranger.json'
  expect_denied mallory 'echo x >/srv/open/mine.json && mv /srv/open/mine.json "$1"' \
    $spool/inbox/mine.json
  expect_denied mallory "ls $spool"
  inbox_is_empty || fail "the inbox holds $(names_in inbox)"
}

scenario_a_member_cannot_list_remove_or_replace() {
  box systemctl start windowflow
  as alice 'echo precious >hers.tmp'
  expect_denied bob 'ls .'
  expect_denied bob 'rm -f hers.tmp'
  expect_denied bob 'mv hers.tmp his.tmp'
  expect_denied bob 'echo his >.his && mv -f .his hers.tmp'
  expect_denied bob 'echo more >>hers.tmp'
  expect_denied bob "ls $spool/done"
  expect_denied bob "ls $spool/failed"
  expect "her file" precious "$(box cat $spool/inbox/hers.tmp)"
}

scenario_a_file_that_cannot_be_read_is_refused_with_its_code() {
  box systemctl start windowflow
  as alice 'umask 077; printf "%s\n" "$1" >.private && mv .private private.ndjson' "$(batch p 3)"
  within 30 "the reason is there" in_folder failed/private.ndjson.error.json
  in_folder failed/private.ndjson || fail "the file isn't beside its reason"
  box cat $spool/failed/private.ndjson.error.json | tr -d ' \n' | grep -q '"code":"unreadable"' ||
    fail "$(box cat $spool/failed/private.ndjson.error.json)"
  batch after 3 | drop bob after.ndjson
  within 30 "the queue goes on" in_folder done/after.ndjson
  expect accepted 3 "$(total accepted)"
}

scenario_sigusr1_dumps_a_report() {
  local n before
  box systemctl start windowflow
  batch r 20 | drop alice r.ndjson
  within 30 "r.ndjson is done" in_folder done/r.ndjson
  for n in 1 2 3 4 5; do
    before=$(reports)
    box systemctl kill --kill-whom=main -s USR1 windowflow
    within 30 "report $n" more_reports_than "$before"
    # whole at any time: read without waiting for anything
    box cat $spool/reports/latest.json | tr -d ' \n' >"$scratch/latest"
    grep -q '^{"format":1,.*"accepted":20,.*}$' "$scratch/latest" ||
      fail "latest.json: $(cat "$scratch/latest")"
  done
  expect ActiveState active "$(unit ActiveState)"
  expect NRestarts 0 "$(unit NRestarts)"
}
reports() { box sh -c "ls $spool/reports/report-*.json 2>/dev/null | wc -l"; }
more_reports_than() { [ "$(reports)" -gt "$1" ]; }

scenario_reload_keeps_the_process() {
  local pid
  box systemctl start windowflow
  pid=$(unit MainPID)
  box systemctl reload windowflow
  within 30 "active again" unit_is ActiveState active
  within 30 "the journal tells of it" journal_has 'configuration'
  mark
  box sh -c 'echo "[[[" >>/etc/windowflow/windowflow.toml'
  box systemctl reload windowflow || true
  within 30 "the journal names the broken file" journal_has '/etc/windowflow/windowflow\.toml'
  within 30 "active with the old configuration" unit_is ActiveState active
  expect MainPID "$pid" "$(unit MainPID)"
  batch after 5 | drop alice after.ndjson
  within 30 "after.ndjson is done" in_folder done/after.ndjson
}

scenario_the_watchdog_restarts_a_hung_daemon() {
  local fed
  override WatchdogSec=3
  box systemctl start windowflow
  # a daemon without work isn't hung: it's fed twice, without a restart
  for _ in 1 2; do
    fed=$(unit WatchdogTimestampMonotonic)
    within 30 "the watchdog is fed" fed_after "$fed"
  done
  expect "NRestarts while idle" 0 "$(unit NRestarts)"
  box systemctl kill --kill-whom=main -s STOP windowflow
  within 30 "the restart" unit_is NRestarts 1
  within 30 "active again" unit_is ActiveState active
  journal_has 'watchdog timeout' || fail "systemd didn't speak of the watchdog"
  batch w 5 | drop alice w.ndjson
  within 30 "w.ndjson is done" in_folder done/w.ndjson
  expect accepted 5 "$(total accepted)"
}
fed_after() { [ "$(unit WatchdogTimestampMonotonic)" != "$1" ]; }

# Half a megabyte that inflates to 16 GiB of white space: for many times as long as the watchdog
# waits there is no event to tell of, and yet nothing hangs.
scenario_a_file_that_inflates_for_long_is_no_hang() {
  override WatchdogSec=2
  box systemctl start windowflow
  bomb >"$scratch/bomb"
  drop alice bomb.zst <"$scratch/bomb"
  batch later 5 | drop alice later.ndjson
  within 300 "the bomb is refused" in_folder failed/bomb.zst.error.json
  box cat $spool/failed/bomb.zst.error.json | grep -q inflates_too_far ||
    fail "$(box cat $spool/failed/bomb.zst.error.json)"
  within 30 "the next file is taken" in_folder done/later.ndjson
  expect NRestarts 0 "$(unit NRestarts)"
  expect accepted 5 "$(total accepted)"
}
# a zstd frame: a bracket, and more than 2^17 times 128 KiB of spaces, four bytes each
bomb() {
  local n
  printf '\x02\x00\x10 ' >"$scratch/runs"
  for n in {1..17}; do
    cat "$scratch/runs" "$scratch/runs" >"$scratch/more"
    mv "$scratch/more" "$scratch/runs"
  done
  printf '\x28\xb5\x2f\xfd\x00\x38\x08\x00\x00['
  cat "$scratch/runs"
  printf '\x02\x00\x10 \x03\x00\x10 '
}

scenario_sigkill_loses_nothing() {
  local round n
  override RestartSec=100ms
  box systemctl start windowflow
  for round in 1 2 3 4; do
    for n in 1 2 3 4 5; do batch "$round-$n" 400 | drop alice "$round-$n.ndjson"; done
    box systemctl kill --kill-whom=main -s KILL windowflow
    within 30 "restart $round" unit_is NRestarts "$round"
    within 30 "active after restart $round" unit_is ActiveState active
  done
  within 30 "all files are taken" inbox_is_empty
  expect "files in done/" 20 "$(box ls $spool/done | wc -l)"
  expect "names in failed/" "" "$(names_in failed)"
  expect accepted 8000 "$(total accepted)"
}

scenario_a_stop_in_the_middle_of_a_big_file() {
  stop_in_the_middle_of 1000000
  note "it lay in $where then"
  start_again_and_expect 1000000
}

scenario_a_stop_without_grace_undoes_the_big_file() {
  configure '[daemon]' 'stop_grace_ms = 0'
  stop_in_the_middle_of 2000000
  expect "where it lies" inbox/big.ndjson "$where"
  start_again_and_expect 2000000
}

# stop_in_the_middle_of EVENTS: leaves in `where` the place in which the big file lies then
stop_in_the_middle_of() {
  local pid
  box systemctl start windowflow
  pid=$(unit MainPID)
  batch big "$1" | drop alice big.ndjson
  within 30 "the daemon reads the big file" has_read_10_mb "$pid"
  box systemctl stop windowflow
  expect Result success "$(unit Result)"
  expect ExecMainStatus 0 "$(unit ExecMainStatus)"
  where=$(box sh -c "cd $spool && ls -d */big.ndjson" || true)
  case $where in
    inbox/big.ndjson | done/big.ndjson) ;;
    *) fail "big.ndjson lies in '$where', not in exactly one of inbox/ and done/" ;;
  esac
  expect "sha256 of big.ndjson" "$(batch big "$1" | sha256sum | cut -d' ' -f1)" \
    "$(box sha256sum "$spool/$where" | cut -d' ' -f1)"
}
start_again_and_expect() {
  box systemctl start windowflow
  within 120 "big.ndjson is done" in_folder done/big.ndjson
  expect accepted "$1" "$(total accepted)"
}
has_read_10_mb() { box awk '/^rchar/ { exit !($2 > 10000000) }' "/proc/$1/io"; }

scenario_what_a_restart_cannot_help_is_not_retried() {
  box sh -c 'echo "window = nonsense" >/etc/windowflow/windowflow.toml'
  box systemctl start windowflow && fail "it started with a broken configuration"
  expect_given_up 78 '/etc/windowflow/windowflow\.toml'
  box rm /etc/windowflow/windowflow.toml
  box systemctl start windowflow && fail "it started without a configuration"
  expect_given_up 78 '/etc/windowflow/windowflow\.toml'
  box sh -c 'echo "db = \"$1\"" >/etc/windowflow/windowflow.toml' sh $db
  box systemctl start windowflow && fail "it started without a store, and nothing to make it from"
  expect_given_up 66 $db
  override ExecStart= 'ExecStart=/usr/bin/windowflow run --no-such-flag'
  box systemctl start windowflow && fail "it started with a flag that it doesn't know"
  expect_given_up 2 no-such-flag
}
# expect_given_up EXIT-CODE WHAT-THE-JOURNAL-NAMES
expect_given_up() {
  expect ActiveState failed "$(unit ActiveState)"
  expect ExecMainStatus "$1" "$(unit ExecMainStatus)"
  expect NRestarts 0 "$(unit NRestarts)"
  journal_has "$2" || fail "the journal doesn't name $2"
  mark
}

scenario_a_broken_store_is_given_up_after_five_starts() {
  override RestartSec=100ms
  box systemctl start windowflow
  box systemctl stop windowflow
  box sh -c "rm -f $db-wal $db-shm; head -c 65536 /dev/zero | tr '\\0' x >$db"
  batch waits 5 | drop alice waits.ndjson
  box systemctl start windowflow && fail "it started"
  within 30 "given up" unit_is ActiveState failed
  [ "$(unit NRestarts)" -le 5 ] || fail "$(unit NRestarts) restarts"
  journal_has "$db" || fail "the journal doesn't name the store"
  expect "inbox" "waits.ndjson " "$(names_in inbox)"
}

scenario_a_read_only_spool_is_named_with_its_fix() {
  read_only_is_named_with_its_fix $spool ReadWritePaths ReadOnlyPaths=$spool ReadWritePaths=
}

scenario_a_read_only_store_folder_is_named_with_its_fix() {
  box install -d -o windowflow -g windowflow -m 750 /var/lib/windowflow
  read_only_is_named_with_its_fix /var/lib/windowflow StateDirectory StateDirectory= \
    ReadOnlyPaths=/var/lib/windowflow
}

# read_only_is_named_with_its_fix PATH FIX DROP-IN-LINE...
read_only_is_named_with_its_fix() {
  local path=$1 fix=$2
  shift 2
  batch waits 5 | drop alice waits.ndjson
  override RestartSec=100ms "$@"
  box systemctl start --no-block windowflow
  within 30 "the journal names $path and says that it's read-only" \
    journal_has "$path.*read-only|read-only.*$path"
  journal_has "$path.*$fix" >/dev/null || fail "the journal doesn't name the fix, $fix"
  expect inbox "waits.ndjson " "$(names_in inbox)"
  # no busy loop: what it says stays readable
  [ "$(journal | wc -l)" -lt 100 ] || fail "$(journal | wc -l) lines of journal"
  box rm $dropin
  box systemctl daemon-reload
  box systemctl stop windowflow
  box systemctl reset-failed
  box systemctl start windowflow
  within 30 "waits.ndjson is done" in_folder done/waits.ndjson
  expect accepted 5 "$(total accepted)"
}

# Longer than a start may take, which is over at once: the daemon says that it's alive and what it waits
# for, and goes on by itself when the disk has room again.
scenario_a_full_disk_at_start_is_waited_out() {
  local filler=/var/lib/windowflow/filler
  configure '[daemon]' 'backoff_max_ms = 500'
  batch waits 5 | drop alice waits.ndjson
  box install -d /var/lib/windowflow
  box mount -t tmpfs -o size=4m tmpfs /var/lib/windowflow
  box sh -c "cat /dev/zero >$filler 2>/dev/null || true"
  override TimeoutStartSec=4 WatchdogSec=2
  box systemctl start --no-block windowflow
  within 30 "twice the time for a start has passed" has_been_starting_for_8_s
  expect ActiveState active "$(unit ActiveState)"
  expect NRestarts 0 "$(unit NRestarts)"
  unit StatusText | grep -qE 'full|room|space' || fail "its status is '$(unit StatusText)'"
  box rm $filler
  within 30 active unit_is ActiveState active
  within 30 "waits.ndjson is done" in_folder done/waits.ndjson
  expect accepted 5 "$(total accepted)"
  box systemctl stop windowflow
  box umount /var/lib/windowflow
}

scenario_case_140_a_closed_folder_at_start_is_waited_out() {
  configure '[daemon]' 'backoff_max_ms = 500'
  box systemctl start windowflow
  box systemctl stop windowflow
  batch waits 5 | drop alice waits.ndjson
  box chmod 500 $spool/done
  box systemctl start windowflow
  within 30 "its status names the folder" status_names $spool/done
  expect NRestarts 0 "$(unit NRestarts)"
  box chmod 750 $spool/done
  within 30 "waits.ndjson is done" in_folder done/waits.ndjson
  expect accepted 5 "$(total accepted)"
}
status_names() { unit StatusText | grep -qF "$1"; }

has_been_starting_for_8_s() {
  box awk -v from_us="$(unit InactiveExitTimestampMonotonic)" \
    '{ exit !($1 * 1000000 > from_us + 8000000) }' /proc/uptime
}

# The probe stands in for the daemon under the very same unit. Run once without the unit, by the
# same user, it shows that it's the unit that forbids, and that the probe can see a difference.
scenario_the_hardening_holds() {
  local must_not
  rustc --edition 2024 -O -o "$scratch/probe" "$here/probe.rs"
  put "$scratch/probe" /usr/bin/windowflow-probe 755
  as alice 'umask 027; echo hers >.foreign'
  override Type=oneshot WatchdogSec=0 Restart=no ExecStart= ExecStart=/usr/bin/windowflow-probe \
    ExecPaths=/usr/bin/windowflow-probe
  box systemctl start windowflow
  journal | sed -n 's/^.*windowflow-probe\[[0-9]*\]: //p' >"$scratch/inside"
  as windowflow windowflow-probe >"$scratch/outside"
  must_not='write-usr write-etc write-var-lib write-open-folder read-home udp-socket tcp-socket
    run-true run-own-file-in-/var/lib/windowflow run-own-file-in-/var/spool/windowflow/done
    run-own-file-in-/tmp run-own-file-in-/dev/shm see-other-processes read-proc-sys setuid-file
    write-and-execute-memory user-namespace lock-memory host-name become-root'
  expect "what the unit allows" \
    "$(printf '%s\n' write-spool rename-inbox-to-done write-store-folder write-tmp unix-socket \
      run-kill read-drop lease-foreign)" "$(sed -n 's/ allowed$//p' "$scratch/inside")"
  expect "what the unit forbids" "$(printf '%s\n' $must_not)" \
    "$(sed -n 's/ denied: .*//p' "$scratch/inside")"
  for must_not in write-open-folder udp-socket tcp-socket run-true run-own-file-in-/tmp \
    see-other-processes read-proc-sys setuid-file write-and-execute-memory; do
    grep -qx "$must_not allowed" "$scratch/outside" ||
      fail "the probe can't even do this without the unit: $must_not"
  done
  grep -q '^lease-foreign denied' "$scratch/outside" ||
    fail "a foreign lease needs no capability here: the scenario with the pause proves nothing"
}
