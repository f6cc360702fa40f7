# shellcheck shell=bash
# What the scripts share: an environment made from nothing, and made once. Source this file, then call `set_up`.
#
#   set_up EXTRA...    .venv with the pinned packages of the given extras of pyproject.toml; without any, those that the
#                      package itself needs
#   need_java          JAVA_HOME of a Java that Spark can run on
#   want_java          the same, but returns 1 where there is none and none can be installed
#
# With POSTROAD_LOCKED=1, .venv is made from constraints.lock: every file must have a hash that is listed there.
#
# All messages go to stderr: the output of a command, such as a benchmark's last line, stays clean. Works on Debian and
# Ubuntu with Python 3.11 or newer; elsewhere too, as long as nothing has to be installed with apt.

ROOT="$(readlink -f -- "${BASH_SOURCE[0]}")"
ROOT="${ROOT%/scripts/lib/setup.sh}"
cd -- "$ROOT" || exit 1

VENV_PYTHON="$ROOT/.venv/bin/python"
STATE=".venv/.postroad" # inside .venv, so that deleting .venv forgets it too

say() {
    printf 'postroad: %s\n' "$*" >&2
}

fail() {
    say "$*"
    exit 1
}

# Installs Debian packages: returns 1 when apt fails, ends the script when apt cannot be used at all.
apt_install() {
    local command="apt-get install -y --no-install-recommends $*"
    local root=()
    command -v apt-get >/dev/null || fail "$* is missing and there is no apt-get here: install it, then run this again"
    if ((EUID != 0)); then
        command -v sudo >/dev/null || fail "$* is missing; run as root, then try again: apt-get update && $command"
        root=(sudo)
    fi
    say "installing $* (${root[*]:+sudo }$command)"
    mkdir -p .cache
    # A failed update is no reason to stop: the package lists at hand may do.
    if ! {
        "${root[@]}" apt-get update -qq || true
        "${root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$@"
    } >.cache/apt.log 2>&1; then
        say "apt failed; the end of .cache/apt.log:"
        tail -n 5 .cache/apt.log >&2
        return 1
    fi
}

python_is_new_enough() {
    "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1
}

python_makes_venvs() {
    "$1" -c 'import ensurepip, venv' >/dev/null 2>&1
}

# Prints the Python to make .venv with: POSTROAD_PYTHON when set, else the newest known that can make one at once.
# Each candidate is run, not only looked up: a version manager's shim can exist without the version behind it.
find_python() {
    local candidate second_best=""
    local candidates=(python3.13 python3.12 python3.11 python3)
    if [[ -n "${POSTROAD_PYTHON:-}" ]]; then
        candidates=("$POSTROAD_PYTHON")
    fi
    for candidate in "${candidates[@]}"; do
        python_is_new_enough "$candidate" || continue
        if python_makes_venvs "$candidate"; then
            printf '%s\n' "$candidate"
            return
        fi
        second_best="${second_best:-$candidate}"
    done
    [[ -n "$second_best" ]] || fail "no Python 3.11 or newer among: ${candidates[*]}. Install one (on Debian 12 or" \
        "Ubuntu 24.04 and later: apt-get install python3 python3-venv) or name it in POSTROAD_PYTHON"
    printf '%s\n' "$second_best"
}

make_venv() {
    local python version
    python="$(find_python)"
    version="$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')"
    if ! python_makes_venvs "$python"; then
        apt_install "python$version-venv" || apt_install python3-venv || true
        python_makes_venvs "$python" || fail "$python cannot make virtual environments;" \
            "run as root, then try again: apt-get update && apt-get install python$version-venv"
    fi
    say "making .venv with Python $version"
    "$python" -m venv --clear .venv
}

# A virtual environment holds absolute paths, and works only with the Python it was made with.
venv_origin() {
    printf '%s\n%s\n' "$ROOT" "$(readlink -f -- "$VENV_PYTHON")"
}

# A .venv that someone made by hand is used as it is; a moved one, and one whose making was interrupted, is not.
venv_is_usable() {
    [[ ! -e "$STATE/unfinished" ]] || return 1
    [[ ! -e "$STATE/origin" || "$(venv_origin)" == "$(cat -- "$STATE/origin")" ]] || return 1
    python_is_new_enough "$VENV_PYTHON" && "$VENV_PYTHON" -c 'import pip' >/dev/null 2>&1
}

wanted_digest() {
    cat pyproject.toml constraints.txt | sha256sum | cut -d ' ' -f 1
}

is_set_up() {
    local digest extra
    [[ -x "$VENV_PYTHON" && -e "$STATE/origin" && ! -e "$STATE/unfinished" ]] || return 1
    [[ "$(venv_origin)" == "$(cat -- "$STATE/origin")" ]] || return 1
    digest="$(wanted_digest)"
    for extra in core "$@"; do
        [[ -e "$STATE/extra-$extra" && "$(cat -- "$STATE/extra-$extra")" == "$digest" ]] || return 1
    done
}

pip_install() {
    local pinned=(-c constraints.txt)
    [[ -z "${POSTROAD_LOCKED:-}" ]] || pinned=()
    # Without bytecode: Python writes that of the modules that are imported, when they are, and most never are. pip
    # undoes a failed installation itself: what was there before still works, so nothing is unfinished.
    "$VENV_PYTHON" -m pip install --quiet --disable-pip-version-check --no-compile "${pinned[@]}" "$@" >&2 || {
        rm -f -- "$STATE/unfinished"
        fail "pip could not install the packages; its message above says why. Run this again when that is mended"
    }
}

install_packages() {
    local extra extras
    venv_is_usable || make_venv
    mkdir -p "$STATE"
    touch "$STATE/unfinished"
    extras="$(IFS=,; printf '%s' "$*")"
    say "installing the pinned packages into .venv (extras: ${extras:-none})"
    if [[ -n "${POSTROAD_LOCKED:-}" ]]; then
        # All pins, and of each only files whose hashes are known; then the package itself, which needs nothing more.
        pip_install --require-hashes -r constraints.lock
        pip_install --no-deps --no-build-isolation -e .
    else
        # The build tool first, pinned as well: an isolated build would fetch whatever version is the newest.
        pip_install setuptools
        pip_install --no-build-isolation -e ".${extras:+[$extras]}"
    fi
    for extra in core "$@"; do
        wanted_digest >"$STATE/extra-$extra"
    done
    venv_origin >"$STATE/origin"
    rm -f -- "$STATE/unfinished"
}

set_up() {
    is_set_up "$@" && return
    mkdir -p .cache
    (
        if command -v flock >/dev/null && ! flock -n 9; then
            say "another run is setting up; waiting for it"
            flock 9
        fi
        is_set_up "$@" || install_packages "$@"
    ) 9>.cache/setup.lock
}

# Prints "VERSION HOME" of a java command, as that Java itself tells them.
describe_java() {
    "$1" -XshowSettings:properties -version 2>&1 | awk -F ' = ' '
        $1 ~ /java\.specification\.version$/ { version = $2 }
        $1 ~ /java\.home$/ { home = $2 }
        END { sub(/^1\./, "", version); if (version != "" && home != "") print version, home }'
}

# Prints the home of the first Java 17 or newer: JAVA_HOME, then PATH, then where Debian keeps them.
find_java() {
    local candidate version home
    for candidate in "${JAVA_HOME:+$JAVA_HOME/bin/java}" java /usr/lib/jvm/*/bin/java; do
        if [[ -z "$candidate" ]] || ! command -v "$candidate" >/dev/null; then
            continue
        fi
        read -r version home < <(describe_java "$candidate") || continue
        if ((${version%%[!0-9]*} >= 17)); then
            printf '%s\n' "$home"
            return
        fi
    done
    return 1
}

# Spark 4 needs Java 17 or newer, and a whole one: a runtime cut down with jlink may lack modules that Spark loads.
need_java() {
    local home
    if ! home="$(find_java)"; then
        say "Spark needs Java 17 or newer, and none was found"
        apt_install openjdk-17-jre-headless || apt_install default-jre-headless || true
        home="$(find_java)" || fail "still no Java 17 or newer; run as root, then try again:" \
            "apt-get update && apt-get install openjdk-17-jre-headless (or name another in JAVA_HOME)"
    fi
    export JAVA_HOME="$home"
    say "using the Java in $JAVA_HOME"
}

want_java() {
    (need_java) && JAVA_HOME="$(find_java)" && export JAVA_HOME
}
