#!/usr/bin/env bash
# The containers for real: three nodes, a crashed node, a crashed SuperLink, a dead ServerApp, a
# re-installation, a device that joins and one that is shut out. Ends with "passed", with
# "skipped: why", or with an error. It works on a copy of the project and, where no Docker daemon
# runs, with one of its own; of all that it starts and builds nothing is left. As root it installs
# the Debian packages that it needs, which stay, as does the build cache of a daemon that was there.
set -euo pipefail
project=$(cd "$(dirname "$0")/.." && pwd)
work=$(mktemp -d "${TMPDIR:-/var/tmp}/forager-docker.XXXXXX")
export COMPOSE_PROJECT_NAME="forager-test-$$" FORAGER_IMAGE="forager:test-$$"
export FLEET_PORT='' NODES='' SERVER='' DEVICE=camera-7  # no port: any that is free
daemon='' follower='' ready='' had_base='' old_stages=''
patience=1800  # seconds for a step, after which it hangs; a run that ends too early is noticed at once

skip() { echo "skipped: $*"; exit 0; }
step() { echo "[$((SECONDS / 60)):$(printf %02d $((SECONDS % 60)))] $*"; }
fail() { echo "failed: $*" >&2; exit 1; }
forager() { "$work/tree/docker/forager.sh" "$@"; }
container() { forager compose ps -q "$1"; }
inside() { docker exec "$(container serverapp)" "$@"; }

# --- The ground: packages, daemon, image

install_packages() {
    local wanted=()
    command -v dockerd >/dev/null || docker info >/dev/null 2>&1 || wanted+=(docker.io)
    docker compose version >/dev/null 2>&1 || command -v docker-compose >/dev/null || wanted+=(docker-compose)
    command -v mmdebstrap >/dev/null || wanted+=(mmdebstrap)
    test "${#wanted[@]}" -gt 0 || return 0
    test "$(id -u)" = 0 || skip "not installed: ${wanted[*]}; root could install them"
    command -v apt-get >/dev/null || skip "not installed: ${wanted[*]}; no apt-get here"
    step "installing ${wanted[*]}"
    { apt-get update && apt-get install -y --no-install-recommends "${wanted[@]}"; } >"$work/apt.log" 2>&1 ||
        skip "could not install ${wanted[*]}: $(tail -n 1 "$work/apt.log")"
}

start_daemon() {
    docker info >/dev/null 2>&1 && return 0
    test "$(id -u)" = 0 || skip "no Docker daemon in reach, and only root can start one"
    ip link show docker0 >/dev/null 2>&1 && old_bridge=yes || old_bridge=''
    old_forward=$(cat /proc/sys/net/ipv4/ip_forward)
    old_policy=$(iptables -S FORWARD 2>/dev/null | head -n 1)
    export DOCKER_HOST="unix://$work/docker.sock"
    dockerd --host "$DOCKER_HOST" --data-root "$work/data" --exec-root "$work/exec" \
        --pidfile "$work/dockerd.pid" >"$work/dockerd.log" 2>&1 &
    daemon=$!
    for _ in $(seq 60); do
        docker info >/dev/null 2>&1 && return 0
        kill -0 "$daemon" 2>/dev/null || break
        sleep 1
    done
    skip "a Docker daemon cannot run here: $(grep -v level=info "$work/dockerd.log" | tail -n 1)"
}

stop_daemon() {
    test -n "$daemon" || return 0
    kill "$daemon" 2>/dev/null || true
    wait "$daemon" 2>/dev/null || true
    test -z "$old_bridge" || return 0
    # The daemon leaves its bridge and its firewall rules behind.
    ip link delete docker0 2>/dev/null || true
    echo "$old_forward" >/proc/sys/net/ipv4/ip_forward
    test -z "$old_policy" || eval "iptables $old_policy"
    local table rule chain
    for table in filter nat; do
        iptables -t $table -S 2>/dev/null | sed -n '/DOCKER\|docker0/s/^-A \(PREROUTING\|OUTPUT\|FORWARD\|POSTROUTING\)/-D \1/p' |
            while read -r rule; do eval "iptables -t $table $rule" || true; done
        for chain in $(iptables -t $table -S 2>/dev/null | sed -n 's/^-N \(DOCKER.*\)/\1/p'); do
            iptables -t $table -F "$chain" || true
        done
        for chain in $(iptables -t $table -S 2>/dev/null | sed -n 's/^-N \(DOCKER.*\)/\1/p'); do
            iptables -t $table -X "$chain" || true
        done
    done
}

stages() { docker images --quiet --filter dangling=true --filter label=forager.stage=build | sort; }

copy_project() {
    mkdir "$work/tree"
    tar -C "$project" --exclude ./.git --exclude ./.venv --exclude ./runs --exclude ./sweeps \
        --exclude ./.flwr-home --exclude './.*_cache' --exclude docker/compose.generated.yml -cf - . |
        tar -C "$work/tree" -xf -
}

build() {
    if ! "$work/tree/docker/build.sh" >"$work/build.log" 2>&1; then
        docker image inspect debian:bookworm-slim forager-base:bookworm 2>/dev/null | grep -q Id ||
            skip "no base image: $(tail -n 1 "$work/build.log")"
        tail -n 20 "$work/build.log" >&2
        fail "the image does not build"
    fi
}

clean_up() {
    local code=$?
    trap - EXIT
    test -z "$follower" || kill "$follower" 2>/dev/null || true
    if test -n "$ready"; then
        test "$code" = 0 || forager compose logs --no-color --tail 15 >&2 || true
        forager down --volumes >/dev/null 2>&1 || true
        docker rmi "$FORAGER_IMAGE" >/dev/null 2>&1 || true
        test -n "$had_base" || docker rmi forager-base:bookworm >/dev/null 2>&1 || true
        comm -13 <(echo "$old_stages") <(stages) | xargs -r docker rmi >/dev/null 2>&1 || true
        left=$(docker ps -aq --filter "name=$COMPOSE_PROJECT_NAME"; docker volume ls -q --filter "name=$COMPOSE_PROJECT_NAME"
            docker network ls -q --filter "name=$COMPOSE_PROJECT_NAME"; docker images -q "$FORAGER_IMAGE")
        test -z "$left" || { echo "failed: left behind: $left" >&2; code=1; }
    fi
    stop_daemon
    rm -rf "$work"
    exit "$code"
}

# --- What is looked at

await() {  # await WHAT COMMAND...: wait until the command succeeds, however slow the machine is
    local deadline=$((SECONDS + patience)) what=$1
    shift
    until "$@"; do
        test "$SECONDS" -lt "$deadline" || fail "waited in vain for: $what"
        test -z "$follower" || kill -0 "$follower" 2>/dev/null || { cat "$work/run.log" >&2; fail "the run ended before: $what"; }
        sleep 2
    done
}

online() { test "$(forager list 2>/dev/null | grep -c ' online ')" = "$1"; }
rounds() { inside sh -c "cat /results/$1/events.jsonl 2>/dev/null" | grep -c '"event":"round-finished"' || true; }
whole_after() {  # whole_after NAME ROUND: whether all three nodes answered in a round after this one
    inside cat "/results/$1/events.jsonl" 2>/dev/null | python3 -c "
import json, sys
events = [json.loads(line) for line in sys.stdin]
sys.exit(not any(e['event'] == 'exchange' and e['kind'] == 'train' and e['round'] > $2 and e['received'] == 3 for e in events))" 2>/dev/null
}
reached() { test "$(rounds "$1")" -ge "$2"; }
healthy() { test "$(docker inspect --format '{{.State.Health.Status}}' "$(container "$1")")" = healthy; }
memory() { for node in 1 2 3; do docker exec "$(container node-$node)" sh -c 'sha256sum /state/*.safetensors' || fail "node-$node remembers nothing"; done; }
answers() { docker exec "$(container superlink)" python -IS /app/docker/health.py grpc:9100 open:control:8000 >/dev/null 2>&1; }
crash() { kill -9 "$(docker inspect --format '{{.State.Pid}}' "$(container "$1")")"; }  # not by Docker, which would not restart it
refused() { test "$(restarts "$1")" -gt 0 && forager compose logs "$1" 2>&1 | grep -q 'does not let this key in'; }
restarts() { docker inspect --format '{{.RestartCount}}' "$(container "$1")"; }

submit() {  # submit NAME ROUNDS: a run of all clients, in the background
    # Error feedback is something that a device has to remember.
    CONFIG="client-selector='all' num-server-rounds=$2 local-steps=500 round.deadline=150.0 run-name='$1'
        uplink='top-k'" \
        forager submit >"$work/run.log" 2>&1 &
    follower=$!
}

finish() {  # wait for the run; say its closing table
    local code=0
    wait "$follower" || code=$?
    follower=''
    test "$code" = 0 || { cat "$work/run.log" >&2; fail "the run ended with exit code $code"; }
    grep -E '^(rounds|time|final|failures)' "$work/run.log" | sed 's/^/    /'
}

is_confined() {
    local service found address
    for service in superlink serverapp node-1 node-2 node-3; do
        found=$(docker inspect --format '{{with .HostConfig}}{{.ReadonlyRootfs}} {{.CapDrop}} {{.PidsLimit}}
{{- " "}}{{.RestartPolicy.Name}} {{.LogConfig.Config}} {{.Memory}} {{.NanoCpus}}{{end}} {{.Config.User}}' "$(container $service)")
        [[ $found =~ ^'true [ALL] 256 unless-stopped map[max-file:3 max-size:10m] '[1-9][0-9]*\ [1-9][0-9]*\ forager$ ]] ||
            fail "$service runs with: $found"
    done
    address=$(docker inspect --format "{{(index .NetworkSettings.Networks \"${COMPOSE_PROJECT_NAME}_control\").IPAddress}}" "$(container superlink)")
    for host in superlink "$address"; do
        ! docker exec "$(container node-1)" python /app/docker/health.py "open:$host:8000" >/dev/null ||
            fail "a node reaches the Control API at $host"
    done
    docker exec "$(container serverapp)" python /app/docker/health.py open:control:8000 >/dev/null ||
        fail 'the ServerApp does not reach the Control API'
}

# --- The story

trap clean_up EXIT
trap 'exit 130' INT TERM
install_packages
start_daemon
ready=yes
old_stages=$(stages)
docker image inspect forager-base:bookworm >/dev/null 2>&1 && had_base=yes
copy_project
forager compose config -q || fail 'compose.yml is not valid'
step 'building the image'
build
step "built: $(docker image inspect --format '{{.Size}}' "$FORAGER_IMAGE" | awk '{printf "%.2f GB", $1 / 1e9}')"

forager up >"$work/up.log" 2>&1 || { tail -n 20 "$work/up.log" >&2; fail 'it does not start'; }
await 'three nodes online' online 3
is_confined
step 'up: three nodes online'
ids=$(forager list 2>/dev/null | awk '{print $1, $3}')

submit crashes 1000  # as many as it takes; it is stopped
await 'the first round' reached crashes 1
crash node-3
step "node-3 crashed after round $(rounds crashes)"
await 'another round' reached crashes 2
await 'node-3 to come back' healthy node-3
step "node-3 is back after $(restarts node-3) tries, round $(rounds crashes)"
before=$(rounds crashes)
crash superlink
step "SuperLink crashed after round $before"
crashed=$SECONDS
await 'the SuperLink to come back' answers
outage=$((SECONDS - crashed))
step "SuperLink is back after $outage s"
await 'a round of all three nodes after the crash of the SuperLink' whole_after crashes "$before"
forager stop >/dev/null
wait "$follower" || true
follower=''
inside python -c "
import json
events = [json.loads(line) for line in open('/results/crashes/events.jsonl')]
rounds = [e['round'] for e in events if e['event'] == 'round-finished']
assert rounds == list(range(1, len(rounds) + 1)), rounds
# A minute of silence is too much for Flower: then, on a slow machine, the run goes on from its checkpoint.
assert len([e for e in events if e['event'] == 'run-started']) == 1 or $outage > 20, 'it was restarted'
trains = [e for e in events if e['event'] == 'exchange' and e['kind'] == 'train']
assert any('node-3' in [*e['failed'], *e['late']] for e in trains), 'node-3 never failed'
" || fail 'the events of the run are not as they should be'
test "$(forager list 2>/dev/null | awk '{print $1, $3}')" = "$ids" || fail 'a node has another id now'
step 'the run went on through both crashes'

submit resumed 6
await 'two rounds' reached resumed 2
docker ps -q --filter "label=com.docker.compose.project=$COMPOSE_PROJECT_NAME" --filter label=com.docker.compose.service=submit |
    xargs docker kill >/dev/null  # nobody is there to go on by himself
wait "$follower" || true
follower=''
crash serverapp
step "ServerApp killed after round $(rounds resumed), nobody follows"
forager resume >"$work/run.log" 2>&1 & follower=$!
finish
test "$(rounds resumed)" = 6 || fail 'the resumed run has not six rounds'
step 'resumed'

remembered=$(memory)
forager down >/dev/null 2>&1
forager up >"$work/up.log" 2>&1 || { tail -n 20 "$work/up.log" >&2; fail 'it does not start again'; }
await 'three nodes online again' online 3
test "$(forager list 2>/dev/null | awk '{print $1, $3}')" = "$ids" || fail 're-installed nodes have other ids'
test "$(memory)" = "$remembered" || fail 're-installed nodes have lost their state'
step 're-installed: same nodes, same ids, same state'

forager ca >"$work/ca.crt"
forager device-key <"$work/ca.crt" >"$work/camera.pub" 2>"$work/up.log"
SERVER=superlink:9092 PARTITION=1/3 forager compose up -d device >/dev/null 2>&1
await 'a device that is not enrolled to be refused, and to be told why' refused device
forager add camera-7 <"$work/camera.pub" | grep -q enrolled || fail 'camera-7 cannot be enrolled'
await 'camera-7 online' online 4
forager revoke node-2 >/dev/null
await 'node-2 shut out' online 3
step 'a device joined, another was shut out'

forager fetch resumed >/dev/null
test -s "$work/tree/runs/resumed/report.html" || fail 'results were not fetched'
step 'passed'
