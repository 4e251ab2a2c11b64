#!/usr/bin/env bash
# Proves the shipped unit, users and folders under a real systemd, in a box (box.sh).
#
#   tests/systemd/run.sh [BINARY [SCENARIO...]]     BINARY: target/release/windowflow
#
# One line a scenario, `ok NAME` or `FAILED NAME` (then with what it said, the journal and the
# spool), and a closing line `N passed, N failed`. The scenarios stand in scenarios.sh.
# Exit 0: all passed. 1: some failed. 77: the machine cannot host a box, nothing was proved; where
# CI is set and the machine has all that a box needs of it (root, mount namespaces) that is a 1.
set -euo pipefail

here=$(dirname "$(readlink -f "$0")")
repo=$(readlink -f "$here/../..")
binary=${1:-$repo/target/release/windowflow}
[ $# -gt 0 ] && shift
export WF_BOX_NAME=windowflow-$$
scratch=$(mktemp -d)
# nothing that runs in the box may eat what the scripts read
exec </dev/null

spool=/var/spool/windowflow
db=/var/lib/windowflow/windowflow.db
dropin=/run/systemd/system/windowflow.service.d/test.conf

main() {
  local name passed=0 failed=0 status
  [ -x "$binary" ] || { echo "no program at $binary: cargo build --release" >&2; exit 1; }
  trap 'status=$?; "$here/box.sh" down; rm -rf "$scratch"; exit $status' EXIT
  boot_or_skip
  install_windowflow
  # shellcheck source=tests/systemd/scenarios.sh
  . "$here/scenarios.sh"
  [ $# -gt 0 ] || mapfile -t names < <(sed -n 's/^scenario_\(.*\)() {$/\1/p' "$here/scenarios.sh")
  [ $# -eq 0 ] || names=("$@")
  for name in "${names[@]}"; do
    # not in a condition: there, bash would ignore the `set -e` inside
    set +e
    (set -e; fresh; "scenario_$name") >"$scratch/said" 2>&1
    status=$?
    set -e
    if [ $status -eq 0 ]; then
      echo "ok $name$(sed -n 's/^note: \(.*\)/ (\1)/p' "$scratch/said")"
      passed=$((passed + 1))
    else
      echo "FAILED $name"
      failed=$((failed + 1))
      show_world | sed 's/^/    /'
    fi
  done
  echo "$passed passed, $failed failed"
  [ $failed -eq 0 ] && [ $passed -gt 0 ]
}

boot_or_skip() {
  local status=0
  "$here/box.sh" up || status=$?
  [ $status -ne 0 ] || return 0
  if [ $status -ne 77 ]; then
    echo "FAILED: the box did not come up" >&2
    exit 1
  fi
  if [ -n "${CI:-}" ] && [ "$(id -u)" = 0 ] && unshare --mount true 2>/dev/null; then
    echo "FAILED: this machine has root and mount namespaces, yet could not host a box" >&2
    exit 1
  fi
  cat >&2 <<'END'
********************************************************************************************
SKIPPED: the systemd unit was NOT tested, because this machine cannot host a box (see above).
********************************************************************************************
END
  exit 77
}

install_windowflow() {
  put "$binary" /usr/bin/windowflow 755
  put "$repo/systemd/windowflow.service" /usr/lib/systemd/system/windowflow.service 644
  put "$repo/systemd/windowflow.sysusers.conf" /usr/lib/sysusers.d/windowflow.conf 644
  put "$repo/systemd/windowflow.tmpfiles.conf" /usr/lib/tmpfiles.d/windowflow.conf 644
  printf '%s\n' 'u alice - "may drop" /home/alice /bin/sh' 'm alice windowflow-drop' \
    'u bob - "may drop" / /bin/sh' 'm bob windowflow-drop' \
    'u mallory - "may not" / /bin/sh' >"$scratch/users.conf"
  put "$scratch/users.conf" /etc/sysusers.d/people.conf 644
  box sh -c 'systemd-sysusers && install -d -m 755 /home/alice && install -d -m 1777 /srv/open' \
    >"$scratch/said" 2>&1 || { cat "$scratch/said" >&2; exit 1; }
}

# A world as after the installation: the unit is stopped, the spool is empty, there is no store.
fresh() {
  put "$repo/systemd/windowflow.toml" /etc/windowflow/windowflow.toml 644
  box sh -c "systemctl stop windowflow; umount -q /var/lib/windowflow
    rm -rf $(dirname $dropin) $spool /var/lib/windowflow
    systemd-tmpfiles --create windowflow.conf && systemctl daemon-reload &&
    systemctl reset-failed && journalctl --sync"
  mark
}

show_world() {
  cat "$scratch/said"
  echo "--- systemctl status"
  box systemctl status --no-pager -n 0 windowflow || true
  echo "--- spool"
  box ls -lR $spool || true
  echo "--- journal"
  journal | tail -n 60
}

# ------------------------------------------------------------------ what the scenarios are made of

box() { "$here/box.sh" exec "$@"; }
put() { "$here/box.sh" put "$@"; }

# as USER SCRIPT [ARG...]: runs the script as that user, in the inbox
as() {
  local user=$1 script=$2
  shift 2
  box setpriv --reuid="$user" --regid="$user" --init-groups \
    env --chdir=$spool/inbox sh -ec "$script" sh "$@"
}

# note TEXT: stands behind the name of a scenario that passed
note() { echo "note: $*"; }
fail() { echo "$*"; exit 1; }

# expect WHAT WANTED FOUND
expect() { [ "$2" = "$3" ] || fail "$1: expected '$2', found '$3'"; }

# expect_denied USER SCRIPT [ARG...]: refused for want of permission, and for nothing else
expect_denied() {
  local said
  if said=$(as "$@" 2>&1); then fail "$1 was allowed: $2 (it said: $said)"; fi
  case $said in
    *'Permission denied'* | *'Operation not permitted'*) ;;
    *) fail "$1 failed for another reason: $2 (it said: $said)" ;;
  esac
}

# within SECONDS WHAT COMMAND...: polls until the command succeeds
within() {
  local deadline=$((SECONDS + $1)) what=$2
  shift 2
  until "$@" >/dev/null 2>&1; do
    [ $SECONDS -lt $deadline ] || fail "not within its time: $what"
    sleep 0.05
  done
}

# What the journal held before this is of no account to journal and journal_has.
mark() { box journalctl -q -n 0 --show-cursor | sed -n 's/^-- cursor: //p' >"$scratch/cursor"; }
# shellcheck disable=SC2016 # expanded by the shell in the box
journal() {
  box sh -c 'journalctl --sync; journalctl -q --no-pager -o short-monotonic --after-cursor="$1" \
    -u windowflow' sh "$(cat "$scratch/cursor")"
}
journal_has() { journal | grep -iE -- "$1"; }

unit() { box systemctl show -P "$1" windowflow; }
unit_is() { [ "$(unit "$1")" = "$2" ]; }
in_folder() { box test -e "$spool/$1"; }
names_in() { box ls -A "$spool/$1" | tr '\n' ' '; }
inbox_is_empty() { [ -z "$(names_in inbox)" ]; }

# override LINE...: a drop-in for [Service], in force from the next start
override() {
  { echo '[Service]'; printf '%s\n' "$@"; } >"$scratch/dropin"
  put "$scratch/dropin" $dropin 644
  box systemctl daemon-reload
}

# configure LINE...: added to the shipped configuration
configure() {
  { cat "$repo/systemd/windowflow.toml"; printf '%s\n' "$@"; } >"$scratch/toml"
  put "$scratch/toml" /etc/windowflow/windowflow.toml 644
}

# batch PREFIX EVENTS: NDJSON, ids PREFIX-1.., each event one millisecond after the other
batch() {
  awk -v prefix="$1" -v events="$2" 'BEGIN { for (i = 1; i <= events; i++)
    printf "{\"id\":\"%s-%d\",\"key\":\"k\",\"timestamp_ms\":%.0f,\"value\":%d}\n", \
      prefix, i, 1700000000000 + i, i }'
}

# drop USER NAME: standard input by way of an ignored name, as a careful producer does
drop() {
  # shellcheck disable=SC2016 # expanded by the shell in the box
  as "$1" 'cat >".$1" && mv ".$1" "$1"' "$2"
}

# the member of the report's "totals", read from the store by the daemon's own user
total() {
  # shellcheck disable=SC2016 # expanded by the shell in the box
  as windowflow 'exec windowflow --db "$1" report --format json' $db | tr -d ' \n' |
    grep -o '"totals":{[^}]*}' | grep -oE "\"$1\":[0-9]+" | cut -d: -f2
}

main "$@"
