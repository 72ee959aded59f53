#!/usr/bin/env bash
# Tries `./dev check` and `./dev demo --once` where nothing but git is installed: a fresh root of Debian, made by debootstrap
# from the mirrors this system uses, in namespaces of its own. Run by hand, as root:
#
#   test/cleanroom/debootstrap.sh [FOLDER [SUITE...]]      FOLDER is made and kept (default: a new one in /var/tmp)
#
# SUITE=sid and POSTGRES=18 choose another release and server, e.g. SUITE=sid POSTGRES=18 test/cleanroom/debootstrap.sh.
set -euo pipefail
cd "$(dirname "$(readlink -f "$0")")/../.."

suite=${SUITE:-bookworm}
room=${1:-$(mktemp -d /var/tmp/cleanroom.XXXXXX)}
shift || true
((EUID == 0)) || { echo "run this as root" >&2; exit 1; }
command -v debootstrap >/dev/null || { echo "install debootstrap first" >&2; exit 1; }

mirror=$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' 'Label: Debian' | head -n 1)
[[ -n $mirror ]] || { echo "apt knows no Debian mirror here" >&2; exit 1; }

started=$SECONDS
if [[ ! -e $room/root/usr/bin/git ]]; then
  mkdir -p "$room"
  chmod 755 "$room"
  debootstrap --variant=minbase --include=git,ca-certificates "$suite" "$room/root" "$mirror" >"$room/debootstrap.log" 2>&1 ||
    { tail -n 20 "$room/debootstrap.log" >&2; exit 1; }
  # What the mirrors need, such as security updates, proxies and their keys, is the same inside.
  if [[ $suite == bookworm ]]; then
    rm -f "$room/root/etc/apt/sources.list"
    cp /etc/apt/sources.list.d/debian.sources "$room/root/etc/apt/sources.list.d/" 2>/dev/null ||
      echo "deb $mirror $suite main" >"$room/root/etc/apt/sources.list"
  fi
  # A mirror may be a snapshot whose release file is older than it says it may be.
  [[ $suite == bookworm ]] || echo 'Acquire::Check-Valid-Until "false";' >"$room/root/etc/apt/apt.conf.d/98snapshot"
  apt-config dump 'Acquire::http::Proxy' >"$room/root/etc/apt/apt.conf.d/99proxy" 2>/dev/null || true
  cp /etc/resolv.conf /etc/hosts "$room/root/etc/" 2>/dev/null || true
fi
echo "root made in $((SECONDS - started)) s: $(chroot "$room/root" dpkg -l | grep -c '^ii') packages"

rm -rf "$room/root/project.git" "$room/root/clone"
git clone -q --bare --no-hardlinks . "$room/root/project.git"
cat >"$room/root/inside.sh" <<'INSIDE'
set -u
mount -t proc proc /proc
mount -t tmpfs -o mode=1777 tmpfs /dev/shm 2>/dev/null || { mkdir -p /dev/shm; mount -t tmpfs -o mode=1777 tmpfs /dev/shm; }
umask 077
git clone -q /project.git /clone
cd /clone
began=$(date +%s)
./dev check "$@"; check=$?
echo "./dev check: status $check after $(($(date +%s) - began)) s"
began=$(date +%s)
./dev demo --once; demo=$?
echo "./dev demo --once: status $demo after $(($(date +%s) - began)) s"
echo "processes left:"
for process in /proc/[0-9]*; do
  [ "${process#/proc/}" = 1 ] || tr '\0' ' ' <"$process/cmdline" 2>/dev/null | sed 's/^/  /; s/$/\n/'
done
git status --short
[ "$check" = 0 ] && [ "$demo" = 0 ]
INSIDE
# A process namespace of its own: what would be left behind ends with it, after having been listed.
env -i PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root TERM=dumb ${POSTGRES:+PG_MAJOR=$POSTGRES} \
  unshare --mount --pid --fork --kill-child chroot "$room/root" /bin/bash /inside.sh "$@"
