# shellcheck shell=bash disable=SC2034 # its variables are for the scripts that source it
# What the scripts in deploy/, tests/run and .ci/run share. Sourced by bash with `set -euo pipefail`.
#
# An instance is known by SMCP_RUN_DIR. A process belongs to it when it has the right name and this variable in
# its environment: pid files only say which process of several is the first one.

ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
PATH=$PATH:/usr/local/sbin:/usr/sbin:/sbin
case ${V:-} in debug | asan | tsan | cov) ;; *) V=release ;; esac
BIN=$ROOT/build/$V

BUILD_PACKAGES=(gcc libc6-dev make pkg-config libfcgi-dev libcjson-dev libcjose-dev libcurl4-openssl-dev libsqlite3-dev
    libssl-dev libsystemd-dev musl-tools)
RUN_PACKAGES=(lighttpd iptables curl ca-certificates util-linux)
TEST_PACKAGES=(libcmocka-dev python3 python3-pytest clang libclang-rt-dev llvm clang-format cppcheck shellcheck
    strace jq procps git busybox-static mmdebstrap python3-pip
    python3-cryptography python3-jwt)

self=${0##*/}
say() { printf '%-12s %s\n' "$1" "$2"; }
die() {
    echo "$self: $*" >&2
    exit 1
}
need_root() { ((EUID == 0)) || die "run this as root"; }

# poll SECONDS COMMAND...: until the command succeeds; false when the time is over.
poll() {
    local end=$((${EPOCHREALTIME/[.,]/} + $1 * 1000000))
    shift
    until "$@"; do
        ((${EPOCHREALTIME/[.,]/} < end)) || return 1
        sleep 0.03
    done
}

# ---- settings -------------------------------------------------------------------------------------

declare -A env_file_values=()

# Reads the env file the way the programs do (common/settings.c, file_line).
read_env_file() {
    local line name value
    while IFS= read -r line || [[ -n $line ]]; do
        line=${line%$'\r'}
        line=${line#"${line%%[![:blank:]]*}"}
        line=${line#export }
        [[ $line == [!#]*=* ]] || continue
        name=${line%%=*}
        value=${line#*=}
        value=${value%"${value##*[![:blank:]]}"}
        case $value in
        \"*\" | \'*\') ((${#value} >= 2)) && value=${value:1:${#value}-2} ;;
        esac
        [[ -z $value ]] || env_file_values[$name]=$value
    done <"$1"
}

# setting NAME DEFAULT: environment, else env file, else default; an empty value counts as absent.
setting() {
    local value=${!1:-}
    printf -v "$1" %s "${value:-${env_file_values[$1]:-$2}}"
}

bytes_of() { # 16m -> 16777216
    awk -v t="$1" 'BEGIN {
        n = t + 0; u = tolower(t); sub(/^[0-9]+/, "", u); sub(/i?b?$/, "", u)
        i = u == "" ? 0 : index("kmgt", u)
        if (t !~ /^[0-9]/ || (u != "" && (!i || length(u) > 1))) exit 1
        printf "%.0f\n", n * 1024 ^ i }'
}

in_brackets() { if [[ $1 == *:* && $1 != \[* ]]; then echo "[$1]"; else echo "$1"; fi; }

load_settings() {
    # The variables the caller gave, before the defaults join them: what a systemd unit has to be told.
    given_environment=$(compgen -v SMCP_ | while read -r n; do [[ -z ${!n} ]] || printf '%s=%s\n' "$n" "${!n}"; done) || true
    ENV_FILE=${SMCP_ENV_FILE:-}
    if [[ -n $ENV_FILE ]]; then
        [[ -r $ENV_FILE ]] || die "SMCP_ENV_FILE=$ENV_FILE cannot be read"
        ENV_FILE=$(realpath "$ENV_FILE")
    elif [[ -r $ROOT/.env ]]; then
        ENV_FILE=$ROOT/.env
    fi
    [[ -z $ENV_FILE ]] || read_env_file "$ENV_FILE"

    # The defaults are those of common/settings.c.
    setting SMCP_TOKEN ""
    setting SMCP_TOKEN_FILE ""
    setting SMCP_PUBLIC_BASE_URL ""
    setting SMCP_HOST 127.0.0.1
    setting SMCP_PORT 8000
    setting SMCP_DATA_DIR /var/lib/sandbox-mcp/data
    setting SMCP_STATE_DB /var/lib/sandbox-mcp/state.db
    setting SMCP_RUN_DIR /run/sandbox-mcp
    setting SMCP_DOCKER_SOCKET /var/run/docker.sock
    setting SMCP_BASE_IMAGE sandbox-mcp-base:latest
    setting SMCP_MAX_BODY_BYTES 16m

    local name probe_host=$SMCP_HOST client_host
    for name in SMCP_DATA_DIR SMCP_STATE_DB SMCP_RUN_DIR SMCP_DOCKER_SOCKET; do
        [[ ${!name} == /* ]] || die "$name=${!name} is not accepted: it takes an absolute path"
        printf -v "$name" %s "${!name%/}"
    done
    [[ $SMCP_PORT =~ ^[0-9]+$ && $SMCP_PORT -ge 1 && $SMCP_PORT -le 65535 ]] ||
        die "SMCP_PORT=$SMCP_PORT is not accepted: it takes a number from 1 to 65535"
    RESPONDER_SOCKET=$SMCP_RUN_DIR/fcgi/sandbox-mcp.sock
    ((${#RESPONDER_SOCKET} < 108)) || die "SMCP_RUN_DIR=$SMCP_RUN_DIR is too long for a unix socket; take a shorter path"
    TOKEN_FILE=${SMCP_TOKEN_FILE:-$(dirname "$SMCP_STATE_DB")/token}

    client_host=$SMCP_HOST
    case $SMCP_HOST in
    0.0.0.0 | '*' | :: | '[::]')
        probe_host=127.0.0.1
        client_host=$(hostname -I 2>/dev/null | awk '{ print $1 }')
        client_host=${client_host:-127.0.0.1}
        ;;
    esac
    PROBE_URL=http://$(in_brackets "$probe_host"):$SMCP_PORT
    SMCP_PUBLIC_BASE_URL=${SMCP_PUBLIC_BASE_URL:-http://$(in_brackets "$client_host"):$SMCP_PORT}
    SMCP_PUBLIC_BASE_URL=${SMCP_PUBLIC_BASE_URL%/}
    LOG_DIR=$SMCP_RUN_DIR/log
    export SMCP_PUBLIC_BASE_URL SMCP_HOST SMCP_PORT SMCP_DATA_DIR SMCP_STATE_DB SMCP_RUN_DIR SMCP_DOCKER_SOCKET
    export DOCKER_HOST=unix://$SMCP_DOCKER_SOCKET

    # systemd keeps the instance that has the default run directory; others start directly.
    use_systemd=0
    if [[ -d /run/systemd/system && $SMCP_RUN_DIR == /run/sandbox-mcp ]]; then use_systemd=1; fi
}

read_token() {
    if [[ -n $SMCP_TOKEN ]]; then
        echo "$SMCP_TOKEN"
    else
        [[ -r $TOKEN_FILE ]] || return 1
        tr -d ' \r\n\t' <"$TOKEN_FILE"
    fi
}

# ---- processes ------------------------------------------------------------------------------------

PARTS=(runner responder lighttpd)
declare -A PROGRAM=([runner]=jobs-runner [responder]=sandbox-mcp [lighttpd]=lighttpd)
declare -A UNIT=([runner]=jobs-runner [responder]=sandbox-mcp [lighttpd]=sandbox-mcp-lighttpd)

pid_file() { echo "$SMCP_RUN_DIR/${PROGRAM[$1]}.pid"; }

# is_ours PART PID: the process is this part of this instance.
is_ours() {
    local comm=
    { read -r comm <"/proc/$2/comm"; } 2>/dev/null || return 1
    [[ $comm == "${PROGRAM[$1]}" ]] || return 1
    grep -qzxF "SMCP_RUN_DIR=$SMCP_RUN_DIR" "/proc/$2/environ" 2>/dev/null || return 1
    # A command-line use of the same program (sandbox-mcp call, --stdio) is not the service.
    [[ $1 != responder ]] || grep -qzxF -e --listen "/proc/$2/cmdline" 2>/dev/null
}

# pid_of PART: the first process of the part when it runs.
pid_of() {
    local pid=
    { read -r pid <"$(pid_file "$1")"; } 2>/dev/null || return 1
    [[ $pid =~ ^[0-9]+$ ]] && is_ours "$1" "$pid" && echo "$pid"
}

# pids_of PART: all its processes, also those a lost pid file does not name.
pids_of() {
    local dir comm
    for dir in /proc/[0-9]*; do
        { read -r comm <"$dir/comm"; } 2>/dev/null || continue
        if [[ $comm == "${PROGRAM[$1]}" ]] && is_ours "$1" "${dir#/proc/}"; then echo "${dir#/proc/}"; fi
    done
}

is_gone() { [[ ! -e /proc/$1 || $(awk '/^State:/ { print $2 }' "/proc/$1/status" 2>/dev/null) == [ZX] ]]; }
none_left() { [[ -z $(pids_of "$1") ]]; }

# stop_part PART: TERM to its first process, time to finish, then KILL to what is left.
stop_part() {
    local part=$1 pid
    local -a left
    if ((use_systemd)) && systemctl -q is-active "${UNIT[$part]}" 2>/dev/null; then
        systemctl stop "${UNIT[$part]}"
    fi
    pid=$(pid_of "$part") || pid=
    mapfile -t left < <(pids_of "$part")
    [[ -n $pid ]] || pid=${left[*]}
    if [[ -n $pid ]]; then
        # shellcheck disable=SC2086 # several pids are several words
        kill $pid 2>/dev/null || true
        if ! poll 15 none_left "$part"; then
            mapfile -t left < <(pids_of "$part")
            kill -KILL "${left[@]}" 2>/dev/null || true
            poll 5 none_left "$part" || die "${PROGRAM[$part]} (pid ${left[*]}) does not end"
        fi
    fi
    rm -f "$(pid_file "$part")" "$SMCP_RUN_DIR/$part.started"
}

# fingerprint PART: changes when the part has to be started again: its program, its settings.
fingerprint() {
    {
        stat -L -c '%n %i %s %y' "$ROOT/deploy/run" "$ROOT/deploy/lib.sh"
        if [[ $1 == lighttpd ]]; then
            stat -L -c '%n %i %s %y' "$(command -v lighttpd)" "$ROOT/lighttpd/sandbox-mcp.conf"
            printf '%s\n' "$SMCP_HOST" "$SMCP_PORT" "$SMCP_MAX_BODY_BYTES"
        else
            stat -L -c '%n %i %s %y' "$BIN/${PROGRAM[$1]}"
            declare -p env_file_values
            compgen -v SMCP_ | grep -vxE 'SMCP_ENV_FILE' | while read -r n; do echo "$n=${!n}"; done
            read_token || true
        fi
    } | sha256sum | cut -c1-64
}

is_current() { [[ $(cat "$SMCP_RUN_DIR/$1.started" 2>/dev/null) == "$(fingerprint "$1")" ]]; }

# ---- packages -------------------------------------------------------------------------------------

missing_packages() {
    comm -23 <(printf '%s\n' "$@" | sort -u) \
        <(dpkg-query -W -f '${Package} ${db:Status-Status}\n' "$@" 2>/dev/null | awk '$2 == "installed" { print $1 }' | sort -u)
}

# install_packages NAME...: what is missing of them, quietly, without starting what they bring.
install_packages() {
    local -a missing
    (($#)) || return 0
    mapfile -t missing < <(missing_packages "$@")
    ((${#missing[@]})) || return 0
    command -v apt-get >/dev/null || die "this is no Debian; install what these packages bring: ${missing[*]}"
    say packages "installing ${missing[*]}"
    local guard=/usr/sbin/policy-rc.d log status=0 guarded=0
    log=$(mktemp)
    if [[ ! -e $guard ]]; then
        guarded=1
        printf '#!/bin/sh\nexit 101\n' >$guard && chmod 755 $guard
    fi
    {
        apt-get -q -o DPkg::Lock::Timeout=300 update &&
            DEBIAN_FRONTEND=noninteractive apt-get -qy -o DPkg::Lock::Timeout=300 \
                -o Dpkg::Options::=--force-confold --no-install-recommends install "${missing[@]}"
    } </dev/null >"$log" 2>&1 || status=$?
    ((!guarded)) || rm -f $guard
    if ((status)); then
        tail -n 15 "$log" >&2
        rm -f "$log"
        die "apt-get could not install: ${missing[*]}"
    fi
    rm -f "$log"
    # Debian's own web server on port 80 is not wanted when it came only as our tool.
    if [[ " ${missing[*]} " == *" lighttpd "* && -d /run/systemd/system ]]; then
        systemctl -q disable --now lighttpd 2>/dev/null || true
    fi
}

# What is missing of Docker: the engine where none is there (Debian's or Docker's own), and the command, which
# Debian 13 has in a package of its own.
docker_packages() {
    command -v dockerd >/dev/null || docker_answers || echo docker.io
    if ! command -v docker >/dev/null; then
        if [[ -n $(apt-cache -q search --names-only '^docker-cli$' 2>/dev/null) ]]; then echo docker-cli; else echo docker.io; fi
    fi
}

# ---- Docker ---------------------------------------------------------------------------------------

# Asks the engine itself; needs nothing but bash and curl.
docker_answers() {
    [[ -S $SMCP_DOCKER_SOCKET ]] &&
        [[ $(curl -fs --max-time 5 --unix-socket "$SMCP_DOCKER_SOCKET" http://localhost/_ping 2>/dev/null) == OK ]]
}

docker_version() {
    curl -fs --max-time 5 --unix-socket "$SMCP_DOCKER_SOCKET" http://localhost/version |
        sed -n 's/.*"Version":"\([^"]*\)","ApiVersion.*/\1/p'
}

docker_settled() { docker_answers || is_gone "$1"; }

# start_docker LOG PID_FILE: by systemd or by hand. The pid file appears only when it was started by hand.
start_docker() {
    local log=$1 pid_file=$2 pid f
    docker_answers && return
    [[ $SMCP_DOCKER_SOCKET == /var/run/docker.sock || $SMCP_DOCKER_SOCKET == /run/docker.sock ]] ||
        die "no Docker engine answers on SMCP_DOCKER_SOCKET=$SMCP_DOCKER_SOCKET; start it"
    if [[ -d /run/systemd/system ]]; then
        systemctl start docker || die "Docker does not start: see 'journalctl -u docker'"
        poll 60 docker_answers || die "Docker does not answer: see 'journalctl -u docker'"
        return
    fi
    command -v dockerd >/dev/null || die "there is no dockerd; install Docker"
    # After a crash or in a copied container these name processes that are something else.
    for f in /var/run/docker.pid /var/run/docker/containerd/containerd.pid; do
        if [[ -s $f ]] && ! grep -qsE '^(dockerd|containerd)$' "/proc/$(<"$f")/comm"; then rm -f "$f"; fi
    done
    env -u DOCKER_HOST setsid dockerd </dev/null >>"$log" 2>&1 9>&- &
    pid=$!
    echo "$pid" >"$pid_file"
    poll 60 docker_settled "$pid" || true
    if ! docker_answers; then
        tail -n 5 "$log" >&2
        kill "$pid" 2>/dev/null || true
        rm -f "$pid_file"
        die "dockerd does not start; its log is $log"
    fi
    disown "$pid" 2>/dev/null || true
}

# stop_docker PID_FILE: the dockerd that start_docker started, nobody else's.
stop_docker() {
    local pid
    pid=$(cat "$1" 2>/dev/null) || return 0
    if [[ $pid =~ ^[0-9]+$ && $(cat "/proc/$pid/comm" 2>/dev/null) == dockerd ]]; then
        kill "$pid" 2>/dev/null || true
        poll 60 is_gone "$pid" || kill -KILL "$pid" 2>/dev/null || true
    fi
    rm -f "$1"
}
