#!/bin/sh
# Takes one program out of a Debian package without installing the package:
# unpack.sh PROGRAM PACKAGE FOLDER puts usr/bin/PROGRAM of PACKAGE into FOLDER.
set -eu

program=$1
package=$2
folder=$(mkdir -p "$3" && cd "$3" && pwd)
if ! command -v apt-get >/dev/null; then
  echo "$program is missing: put it somewhere in PATH, and run this again" >&2
  exit 1
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
chmod 755 "$work"
echo "$program is missing, taking it from the package $package into $folder" >&2
cd "$work"
get="apt-get -o APT::Sandbox::User=root download $package"
$get >&2 || { apt-get update >&2 && $get >&2; }
dpkg -x ./*.deb .
install -m 755 "usr/bin/$program" "$folder/$program"
