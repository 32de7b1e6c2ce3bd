#!/usr/bin/env bash
# Run a federation in containers: forager.sh <command>. README.md in this folder explains.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
generated=$here/compose.generated.yml

usage() {
    cat <<'TEXT'
On the server
  deploy            up, submit, fetch
  up                build and start the server and NODES nodes on this machine
  server            build and start the server alone, for devices on other machines
  submit            start a run with CONFIG="key=value ..." and follow it
  resume [RUN]      resume a run that died, by default the last
  follow, stop      the current run
  fetch [RUN]       copy a run's results to runs/, by default the last
  ca                print the certificate that devices need
  list              devices and whether they are online
  add NAME          enrol a device; its public key on standard input
  revoke NAME       shut a device out for good
  logs SERVICE      what it said
  down [--volumes]  stop and remove containers; with --volumes also keys, state and results
  compose ...       docker-compose with the right file
  generate N        print compose.yml with N nodes
On a device
  device-key        make this device's key, print its public half; ca.crt on standard input
  device            build and start this device
TEXT
}

compose() {
    local file=$here/compose.yml program=(docker-compose)
    test ! -e "$generated" || file=$generated
    if docker compose version >/dev/null 2>&1; then program=(docker compose); fi
    "${program[@]}" -f "$file" "$@"
}

tool() { compose run --rm --no-deps -T "$@"; }

# compose.yml with as many nodes as asked for: its first node, repeated.
generate() {
    awk -v nodes="$1" '
        /^ *# first node$/ { block = ""; taking = 1; next }
        /^ *# other nodes$/ { taking = 0; skipping = 1; next }
        /^ *# end of nodes$/ {
            for (i = 1; i <= nodes; i++) {
                copy = block
                gsub(/node-1/, "node-" i, copy)
                gsub(/NODE_1/, "NODE_" i, copy)
                gsub(/1\/3/, i "/" nodes, copy)
                printf "%s", copy
            }
            skipping = 0
            next
        }
        taking { block = block $0 "\n"; next }
        !skipping
    ' "$here/compose.yml"
}

wait_until_healthy() {
    local deadline=$((SECONDS + 180)) waiting
    while waiting=$(not_healthy) && test -n "$waiting"; do
        test "$SECONDS" -lt "$deadline" || { echo "not healthy: $waiting" >&2; return 1; }
        sleep 2
    done
}

# Containers that have a probe which has not succeeded yet.
not_healthy() {
    compose ps -q | xargs docker inspect \
        --format '{{if .State.Health}}{{.State.Health.Status}} {{.Name}}{{end}}' | grep -v '^healthy \|^$' || true
}

up() {
    if test -n "${NODES:-}"; then
        [[ $NODES =~ ^[1-9][0-9]*$ ]] || { echo "NODES = '$NODES' is not allowed: a count from 1 up is needed" >&2; exit 2; }
        generate "$NODES" >"$generated"
    fi
    "$here/build.sh"
    start "$@" || { compose ps; exit 1; }
    wait_until_healthy
}

start() {
    local code=0
    compose up -d --remove-orphans "$@" 2>&1 | tee "${TMPDIR:-/tmp}/forager-up.$$" || code=$?
    if grep -q 'port is already allocated\|address already in use' "${TMPDIR:-/tmp}/forager-up.$$"; then
        echo "port ${FLEET_PORT:-9092} is taken by another program: set FLEET_PORT in docker/.env, and the port in the devices' SERVER" >&2
    fi
    rm -f "${TMPDIR:-/tmp}/forager-up.$$"
    return "$code"
}

newest() { docker exec "$1" ls -t /results | head -n 1; }

fetch() {
    local id run
    id=$(compose ps -q serverapp)
    run=${1:-$(newest "$id")}
    test -n "$run" || { echo "there are no results yet" >&2; exit 1; }
    mkdir -p "$here/../runs"
    docker cp "$id:/results/$run" "$here/../runs/" >/dev/null
    echo "results: runs/$run"
}

submit() { tool submit run --run-config "${CONFIG:-}" </dev/null; }

deploy() {
    local code=0
    up
    submit || code=$?
    fetch || true
    return "$code"
}

action=${1:-help}
test $# -eq 0 || shift
case $action in
    deploy | up | submit) "$action" ;;
    fetch) fetch "$@" ;;
    server) up serverapp ;;
    device) up device ;;
    device-key) "$here/build.sh" >&2 && tool device-key ;;
    resume | follow | stop) tool submit "$action" "$@" </dev/null ;;
    list | revoke) tool fleet "$action" "$@" </dev/null ;;
    add) tool fleet add "$@" ;;
    ca) tool --entrypoint cat submit /public/ca.crt </dev/null ;;
    logs) compose logs --tail 100 "$@" ;;
    down) compose --profile tools --profile device down --remove-orphans "$@" ;;
    compose) compose "$@" ;;
    generate) generate "$@" ;;
    *) usage ;;
esac
