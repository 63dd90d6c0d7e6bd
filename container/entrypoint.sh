#!/bin/sh
# The arguments of the container are those of gitops. For `serve`, and without arguments, variables say what to serve and where:
#
# OMNIGRAPH_CLUSTER  a cluster folder or the URI of a storage root
# OMNIGRAPH_BIND     the address to listen on (default: 0.0.0.0:8080)
#
# An argument wins over the variable of its option. Exit code 64: a variable names another source beside OMNIGRAPH_CLUSTER.
set -eu

if [ "$#" -eq 0 ] && [ -n "${OMNIGRAPH_CLUSTER:-}" ]; then
  set -- serve
fi
if [ "${1:-}" != serve ]; then
  exec gitops "$@"
fi
shift
if [ -n "${OMNIGRAPH_CLUSTER:-}" ]; then
  for name in OMNIGRAPH_TARGET_URI OMNIGRAPH_CONFIG OMNIGRAPH_TARGET; do
    eval "other=\${$name:-}"
    if [ -n "$other" ]; then
      echo "ERROR exclusive_boot_source $name: OMNIGRAPH_CLUSTER is the only source of a server; $name cannot stand beside it" >&2
      echo "      fix: start the container without the variable $name" >&2
      exit 64
    fi
  done
  set -- --cluster "$OMNIGRAPH_CLUSTER" "$@"
fi
exec gitops serve --bind "${OMNIGRAPH_BIND:-0.0.0.0:8080}" "$@"
