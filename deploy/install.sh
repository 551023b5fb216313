#!/bin/sh
# Installs the package that brings a program: install.sh PROGRAM APT DNF APK, where
# the last three are the package's name for each package manager. Without root, or
# beside another package manager, it prints what to run instead and fails.
set -eu

program=$1
if command -v apt-get >/dev/null; then
  command="apt-get update && apt-get install -y --no-install-recommends $2"
elif command -v dnf >/dev/null; then
  command="dnf install -y $3"
elif command -v apk >/dev/null; then
  command="apk add $4"
else
  echo "$program is missing: install the package that brings it, and run this again" >&2
  exit 1
fi
if [ "$(id -u)" -ne 0 ]; then
  echo "$program is missing; run this first: sudo sh -c '$command'" >&2
  exit 1
fi
echo "$program is missing, installing it: $command" >&2
DEBIAN_FRONTEND=noninteractive sh -c "$command" >&2
