#!/usr/bin/env bash
# A real systemd as PID 1 in a throw-away sandbox of this machine, to try a unit in for real.
# It is not a container to work in: each `up` boots a pristine copy, each `down` throws it away.
#
#   box.sh up                   boot, and wait until systemd says it runs
#   box.sh exec CMD ARG...      run a command in the box, as root, with a clean environment
#   box.sh put SRC DST MODE     copy a file of the host into the box
#   box.sh console              what the box printed while it booted
#   box.sh down                 power off and throw away what was written
#   box.sh forget               remove the cached root file system
#
# Needs root, mount namespaces, mmdebstrap and systemd-nspawn (Debian: systemd-container).
# The root file system is of the host's own suite, so a program linked on the host runs in the box;
# it is made once (about half a minute, from the package mirror) and kept in WF_BOX_DIR
# (/var/tmp/windowflow-systemd-box). WF_BOX_NAME tells boxes that run side by side apart.
#
# Exit 77: this machine cannot host a box, and standard error says why.
set -euo pipefail

dir=${WF_BOX_DIR:-/var/tmp/windowflow-systemd-box}
name=${WF_BOX_NAME:-windowflow-box}
root=$dir/root
run=$dir/run-$name
# procps brings the kill(1) of ExecReload=, libnss-systemd the names of system users
packages=systemd,systemd-sysv,dbus,libnss-systemd,procps

main() {
  local command=${1:-}
  [ $# -gt 0 ] && shift
  case $command in
    up) check_host; make_root; boot ;;
    exec) in_box "$@" ;;
    put) put "$@" ;;
    console) cat "$run/console" ;;
    down) down ;;
    forget) rm -rf --one-file-system "$root" "$root.new" ;;
    __host_of_the_box) host_of_the_box ;;
    *) sed -n '2,17s/^# \{0,1\}//p' "$0" >&2; exit 2 ;;
  esac
}

cannot() { echo "box.sh: cannot host a box here: $*" >&2; exit 77; }

check_host() {
  local tool missing=()
  [ "$(id -u)" = 0 ] || cannot "root is needed"
  unshare --mount --propagation private true 2>/dev/null ||
    cannot "the kernel or the container forbids new mount namespaces"
  for tool in mmdebstrap systemd-nspawn nsenter flock setsid; do
    command -v "$tool" >/dev/null || missing+=("$tool")
  done
  [ ${#missing[@]} -eq 0 ] ||
    cannot "${missing[*]} missing; apt-get install mmdebstrap systemd-container util-linux"
}

# The cached root, made under a lock and moved into place whole: a run that was cut off leaves none.
make_root() {
  local suite unit
  mkdir -p "$dir"
  exec 9>"$dir/lock"
  flock 9
  suite=$(. /etc/os-release && echo "$VERSION_CODENAME")
  if [ "$(cat "$root/.made-of" 2>/dev/null)" != "$suite $packages" ]; then
    echo "box.sh: making the root file system ($suite) in $root, once" >&2
    rm -rf --one-file-system "$root" "$root.new"
    mmdebstrap --quiet --variant=minbase --include="$packages" \
      --dpkgopt='path-exclude=/usr/share/doc/*' --dpkgopt='path-exclude=/usr/share/man/*' \
      --dpkgopt='path-exclude=/usr/share/locale/*' \
      "$suite" "$root.new" >"$dir/mmdebstrap.log" 2>&1 ||
      { tail -n 20 "$dir/mmdebstrap.log" >&2; cannot "mmdebstrap failed (see above)"; }
    for unit in apt-daily.timer apt-daily-upgrade.timer dpkg-db-backup.timer getty@.service \
      console-getty.service systemd-firstboot.service systemd-pstore.service; do
      ln -sf /dev/null "$root.new/etc/systemd/system/$unit"
    done
    : >"$root.new/etc/machine-id"
    echo "$suite $packages" >"$root.new/.made-of"
    mv "$root.new" "$root"
  fi
  exec 9>&-
}

boot() {
  local deadline state=none
  leader >/dev/null && { echo "box.sh: $name is up already" >&2; exit 1; }
  rm -rf --one-file-system "$run"
  mkdir -p "$run"
  WF_BOX_DIR=$dir WF_BOX_NAME=$name setsid unshare --mount --propagation private \
    bash "$(readlink -f "$0")" __host_of_the_box >"$run/console" 2>&1 </dev/null &
  deadline=$((SECONDS + 60))
  while [ $SECONDS -lt $deadline ]; do
    if leader >/dev/null; then
      state=$(in_box systemctl is-system-running 2>/dev/null || true)
      case $state in
        running) return 0 ;;
        degraded) in_box systemctl --failed --no-legend >&2; return 0 ;;
      esac
    elif [ -e "$run/ended" ]; then
      break
    fi
    sleep 0.1
  done
  cat "$run/console" >&2
  down
  cannot "systemd did not come up (its last state: $state)"
}

# Runs in a mount namespace of its own: what it mounts is not seen outside and goes with it.
host_of_the_box() {
  local cgroup=/sys/fs/cgroup/$name
  # systemd-nspawn keeps its scratch in /run; the box gets a pure cgroup v2, also on a mixed host
  mount -t tmpfs -o mode=755 tmpfs /run
  mount -t cgroup2 cgroup2 /sys/fs/cgroup
  # what the box writes is kept in memory: an overlay (of Docker, say) takes no other one on top
  mkdir -p "$run/fs" "$cgroup"
  mount -t tmpfs -o mode=755,size=2g tmpfs "$run/fs"
  mkdir "$run/fs/upper" "$run/fs/work" "$run/fs/merged"
  mount -t overlay overlay \
    -o "lowerdir=$root,upperdir=$run/fs/upper,workdir=$run/fs/work" "$run/fs/merged"
  (
    echo "$BASHPID" >"$cgroup/cgroup.procs"
    # bpf: systemd needs it for IPAddressDeny= and DeviceAllow=
    exec env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin SYSTEMD_NSPAWN_UNIFIED_HIERARCHY=1 \
      systemd-nspawn --boot --directory="$run/fs/merged" --machine="$name" --register=no \
      --keep-unit --private-network --settings=no --link-journal=no --resolv-conf=off \
      --timezone=off --console=pipe --kill-signal=SIGRTMIN+3 \
      --capability=CAP_BPF --system-call-filter=bpf </dev/null
  ) &
  echo $! >"$run/nspawn.pid"
  wait $! || echo "systemd-nspawn ended with $?"
  find "$cgroup" -depth -type d -exec rmdir {} + 2>/dev/null || true
  : >"$run/ended"
}

# The box's PID 1 as the host counts: the child of systemd-nspawn that is 1 in its own namespace.
leader() {
  local nspawn child
  nspawn=$(cat "$run/nspawn.pid" 2>/dev/null) || return 1
  for child in $(cat "/proc/$nspawn/task/$nspawn/children" 2>/dev/null); do
    if [ "$(cat "/proc/$child/comm" 2>/dev/null)" = systemd ] &&
      [ "$(awk '/^NSpid:/ { print $NF }' "/proc/$child/status")" = 1 ]; then
      echo "$child"
      return 0
    fi
  done
  return 1
}

in_box() {
  local pid
  pid=$(leader) || { echo "box.sh: $name is not up" >&2; exit 1; }
  nsenter -t "$pid" --mount --uts --ipc --net --pid --cgroup --root --wd -- \
    env -i PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root \
    LANG=C.UTF-8 TERM=dumb SYSTEMD_PAGER=cat SYSTEMD_COLORS=0 "$@"
}

# Written beside and renamed, so that a file in use is replaced and never half there.
put() {
  local source=$1 target=$2 mode=$3
  # shellcheck disable=SC2016 # expanded by the shell in the box
  in_box sh -c 'mkdir -p "$(dirname "$1")" && cat >"$1.new" && chmod "$2" "$1.new" &&
    mv "$1.new" "$1"' sh "$target" "$mode" <"$source"
}

down() {
  local nspawn pid deadline=$((SECONDS + 20))
  if nspawn=$(cat "$run/nspawn.pid" 2>/dev/null) && [ ! -e "$run/ended" ]; then
    pid=$(leader) && in_box systemctl poweroff --no-block >/dev/null 2>&1 || true
    until [ -e "$run/ended" ] || [ $SECONDS -ge $deadline ]; do sleep 0.05; done
    # the death of PID 1 ends all that runs in the box
    [ -e "$run/ended" ] || kill -KILL "${pid:-$nspawn}" 2>/dev/null || true
    deadline=$((SECONDS + 10))
    until [ -e "$run/ended" ] || [ $SECONDS -ge $deadline ]; do sleep 0.05; done
  fi
  rm -rf --one-file-system "$run"
}

main "$@"
