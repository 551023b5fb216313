#!/bin/sh
# Runs a program as root of a user and network namespace of its own, whose loopback
# interface is up: rootless.sh PROGRAM ARGUMENT...
# Tests that make network namespaces need no more than that.
exec unshare --map-root-user --net sh -c 'ip link set lo up && exec "$0" "$@"' "$@"
