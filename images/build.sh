#!/bin/bash
# Builds a sandbox image without an image registry: Debian packages into a folder, then docker import.
#
#   images/build.sh base [TAG]    Debian with Python, git and the usual tools (sandbox-mcp-base:latest)
#   images/build.sh mini [TAG]    busybox only, for tests (sandbox-mcp-mini:latest)
#
#   --force            build although an image of the same inputs exists
#   SUITE=trixie       another Debian release than the one of this machine
#   EXTRA="gcc nodejs" more Debian packages for base
#
# The image carries a hash of its inputs as a label; while that matches, nothing is built.
# The way to the packages (apt mirror, proxy, pip index) is the one this machine is set up for; none of it
# stays in the image.
set -euo pipefail
PATH=$PATH:/usr/sbin:/sbin
export LC_ALL=C.UTF-8 DEBIAN_FRONTEND=noninteractive

here=$(cd "$(dirname "$0")" && pwd)
label=io.sandbox_mcp.image.inputs
work=

say() { echo "images/build.sh: $*" >&2; }
die() { say "$*"; exit 1; }
usage() { sed -n '2,/^set /{/^set /!s/^# \{0,1\}//p}' "$0"; exit "$1"; }

cleanup() {
    if [[ -n $work ]]; then
        # A build that was cut short may have left mounts: unmount them before anything is removed.
        awk -v d="$work/" 'index($2, d) == 1 { print $2 }' /proc/mounts | sort -r |
            while read -r m; do umount -l "$m" || true; done
        rm -rf --one-file-system "$work"
    fi
}

# Runs a command whose output matters only when it fails.
quietly() {
    if ! "$@" >"$work/log" 2>&1; then
        tail -n 12 "$work/log" | cut -c1-300 >&2
        return 1
    fi
}

words() { sed 's/#.*//' "$1" | tr -s ' \t\n' ' ' | sed 's/^ //; s/ $//'; }

need() { # command package
    command -v "$1" >/dev/null && return
    say "installing $2"
    { quietly apt-get update -q && quietly apt-get install -qy --no-install-recommends "$2"; } ||
        die "cannot install $2; install it and run this again"
}

inputs_hash() { # files and words that decide what the image is
    { cat "$here/build.sh"; printf '%s\n' "$@"; } | sha256sum | cut -c1-32
}

is_built() { # tag hash
    local have
    have=$(docker image inspect -f "{{ index .Config.Labels \"$label\" }}" "$1" 2>/dev/null) || return 1
    [[ $have == "$2" ]]
}

# import ROOT TAG HASH [change...]: the folder becomes the image; the image it replaces goes away.
import() {
    local root=$1 tag=$2 hash=$3 old new
    shift 3
    old=$(docker image inspect -f "{{ if index .Config.Labels \"$label\" }}{{ .Id }}{{ end }}" "$tag" 2>/dev/null) || old=
    local args=(--change "LABEL $label=$hash" --change 'WORKDIR /workspace')
    local c
    for c in "$@"; do args+=(--change "$c"); done
    new=$(tar --numeric-owner -C "$root" --exclude='./dev/*' -cf - . |
        docker import "${args[@]}" - "$tag") || die "docker import failed"
    # Refused while a sandbox still uses it; then it stays without a name.
    [[ -z $old || $old == "$new" ]] || docker rmi "$old" >/dev/null 2>&1 || true
    say "$tag is $(docker image inspect -f '{{ .Size }}' "$tag" | awk '{ printf "%.1f MB", $1 / 1e6 }')"
}

# ---- mini -----------------------------------------------------------------------------------------

busybox_static() {
    [[ -x /bin/busybox ]] && ! ldd /bin/busybox >/dev/null 2>&1
}

build_mini() {
    local tag=$1 root=$work/root applet hash
    if ! busybox_static; then
        say "installing busybox-static"
        { quietly apt-get update -q && quietly apt-get install -qy busybox-static; } ||
            die "cannot install busybox-static; install it and run this again"
    fi
    hash=$(inputs_hash mini "$(sha256sum </bin/busybox)")
    if ((!force)) && is_built "$tag" "$hash"; then
        say "$tag is up to date"
        return
    fi
    mkdir -p "$root"/{bin,dev,etc,home,proc,root,run,sys,tmp,usr,var/log,workspace}
    chmod 1777 "$root/tmp"
    chmod 700 "$root/root"
    ln -s ../tmp "$root/var/tmp"
    ln -s ../run "$root/var/run"
    ln -s bin "$root/sbin"
    ln -s ../bin "$root/usr/bin"
    ln -s ../bin "$root/usr/sbin"
    cp /bin/busybox "$root/bin/busybox"
    for applet in $(/bin/busybox --list); do
        [[ $applet == busybox ]] || ln -s busybox "$root/bin/$applet"
    done
    # Debian leaves this applet out of its busybox.
    if [[ ! -e $root/bin/nohup ]]; then
        printf '%s\n' '#!/bin/sh' "trap '' HUP" \
            'if [ -t 1 ]; then exec "$@" >>nohup.out 2>&1; else exec "$@"; fi' >"$root/bin/nohup"
        chmod 755 "$root/bin/nohup"
    fi
    printf '%s\n' root:x:0:0:root:/root:/bin/sh user:x:1000:1000::/home:/bin/sh \
        nobody:x:65534:65534:nobody:/nonexistent:/bin/false >"$root/etc/passwd"
    printf '%s\n' root:x:0: user:x:1000: nogroup:x:65534: >"$root/etc/group"
    printf '%s\n' 'ID=sandbox-mcp-mini' 'PRETTY_NAME="sandbox-mcp test image (busybox)"' >"$root/etc/os-release"
    import "$root" "$tag" "$hash" 'ENV PATH=/bin' 'ENV LANG=C.UTF-8' 'CMD ["/bin/sh"]'
}

# ---- base -----------------------------------------------------------------------------------------

# The Debian archives this machine uses, as sources.list lines for the suite; the public ones where it has none.
apt_sources() {
    # shellcheck disable=SC2016 # apt-get expands these
    local uri suite component lines='' format='$(REPO_URI) $(CODENAME) $(COMPONENT)'
    while read -r uri suite component; do
        case $suite in
        "$SUITE" | "$SUITE-updates" | "$SUITE-security") lines+="deb $uri $suite $component"$'\n' ;;
        esac
    done < <(apt-get indextargets --format "$format" 'Created-By: Packages' 'Origin: Debian' 2>/dev/null | sort -u)
    if grep -q "^deb [^ ]* $SUITE " <<<"$lines"; then
        printf '%s' "$lines"
    else
        public_sources
    fi
}

public_sources() {
    printf 'deb http://deb.debian.org/debian %s main\n' "$SUITE" "$SUITE-updates"
    printf 'deb http://deb.debian.org/debian-security %s-security main\n' "$SUITE"
}

# Python packages: fetched by this machine's pip with its configuration, installed by the image's pip without any.
python_packages() {
    local root=$1 version name host=
    local -a names
    read -r -a names <<<"$(words "$here/base.pip")"
    for name in /usr/bin/python3 python3; do
        if "$name" -m pip --version >/dev/null 2>&1; then
            host=$name
            break
        fi
    done
    if [[ -z $host ]]; then
        say "no pip on this machine: the image goes without ${names[*]} (apt-get install python3-pip adds them)"
        return
    fi
    version=$(chroot "$root" python3 -c 'import sys; print("%d.%d" % sys.version_info[:2])')
    mkdir "$root/tmp/wheels"
    local fetch=("$host" -m pip download -q --retries 2 --disable-pip-version-check --no-cache-dir --only-binary=:all:
        --python-version "$version" -d "$root/tmp/wheels")
    local -a got=()
    if "${fetch[@]}" "${names[@]}" >/dev/null 2>&1; then
        got=("${names[@]}")
    else # one that cannot be had does not cost the others
        for name in "${names[@]}"; do
            if "${fetch[@]}" "$name" >/dev/null 2>&1; then
                got+=("$name")
            else
                say "pip cannot get $name: the image goes without it"
            fi
        done
    fi
    if ((${#got[@]} < ${#names[@]})); then
        say "once pip works on this machine, 'images/build.sh --force base' adds what is missing"
    fi
    if ((${#got[@]})); then
        quietly chroot "$root" env -i PATH=/usr/bin:/bin LANG=C.UTF-8 python3 -m pip install -q --no-index --no-cache-dir \
            --break-system-packages --root-user-action=ignore --find-links /tmp/wheels "${got[@]}" ||
            say "pip cannot install ${got[*]}: the image goes without them"
    fi
    rm -rf "$root/tmp/wheels"
}

build_base() {
    local tag=$1 root=$work/root hash packages
    packages="$(words "$here/base.packages") ${EXTRA:-}"
    hash=$(inputs_hash base "$SUITE" "$(dpkg --print-architecture)" "$packages" "$(words "$here/base.pip")")
    if ((!force)) && is_built "$tag" "$hash"; then
        say "$tag is up to date"
        return
    fi
    need mmdebstrap mmdebstrap
    [[ -e /usr/share/keyrings/debian-archive-keyring.gpg ]] || need debian-archive-keyring debian-archive-keyring

    say "building $tag from Debian $SUITE packages (about a minute)"
    apt-config dump | grep -E '^Acquire::(http|https|ftp|Check-|Retries|ForceIPv)' >"$work/apt.conf" || true
    apt_sources >"$work/sources.list"
    # No manuals: nobody reads them in a sandbox, and they are a tenth of the size.
    quietly mmdebstrap --mode=root --variant=minbase --include="$(tr -s ' ' , <<<"${packages% }")" \
        --aptopt="$work/apt.conf" \
        --dpkgopt='path-exclude=/usr/share/man/*' --dpkgopt='path-exclude=/usr/share/info/*' \
        --dpkgopt='path-exclude=/usr/share/doc/*' --dpkgopt='path-include=/usr/share/doc/*/copyright' \
        --dpkgopt='path-exclude=/usr/share/locale/*/LC_MESSAGES/*.mo' \
        "$SUITE" "$root" "$work/sources.list" || die "the Debian packages could not be installed"

    python_packages "$root"

    rm -f "$root"/etc/apt/apt.conf.d/99mmdebstrap "$root"/etc/apt/sources.list.d/* "$root/etc/resolv.conf" \
        "$root/etc/hostname" "$root"/var/cache/apt/*.bin "$root"/var/log/{dpkg,alternatives,bootstrap}.log
    rm -rf "$root"/var/lib/apt/lists/* "$root"/var/log/apt "$root"/root/.cache "$root"/tmp/*
    public_sources >"$root/etc/apt/sources.list"
    printf '%s\n' 'APT::Install-Recommends "false";' 'DPkg::Post-Invoke { "rm -f /var/cache/apt/archives/*.deb || true"; };' \
        >"$root/etc/apt/apt.conf.d/90sandbox"
    mkdir -p "$root/workspace"
    import "$root" "$tag" "$hash" \
        'ENV PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin' 'ENV LANG=C.UTF-8' \
        'ENV DEBIAN_FRONTEND=noninteractive' 'ENV PIP_BREAK_SYSTEM_PACKAGES=1' 'ENV PIP_DISABLE_PIP_VERSION_CHECK=1' 'ENV PIP_ROOT_USER_ACTION=ignore' \
        'CMD ["/bin/bash"]'
}

# ---- main -----------------------------------------------------------------------------------------

force=0
args=()
for a in "$@"; do
    case $a in
    --force) force=1 ;;
    -h | --help) usage 0 ;;
    -*) usage 2 >&2 ;;
    *) args+=("$a") ;;
    esac
done
((${#args[@]} == 1 || ${#args[@]} == 2)) || usage 2 >&2
kind=${args[0]}
tag=${args[1]:-sandbox-mcp-$kind:latest}
if [[ -z ${SUITE:-} ]]; then
    # shellcheck source=/dev/null
    SUITE=$(. /etc/os-release && [[ ${ID:-} == debian ]] && echo "${VERSION_CODENAME:-}") || true
    SUITE=${SUITE:-bookworm}
fi

((EUID == 0)) || die "run this as root"
docker version >/dev/null 2>&1 || die "Docker does not answer; ./deploy/up starts it"
trap cleanup EXIT
trap 'exit 130' INT TERM HUP
work=$(mktemp -d "${TMPDIR:-/tmp}/sandbox-mcp-image.XXXXXX")
chmod 755 "$work" # apt's download user has to pass

case $kind in
base) build_base "$tag" ;;
mini) build_mini "$tag" ;;
*) usage 2 >&2 ;;
esac
