# Sourced by the scripts beside it: what they need of Debian's packages.

# Installs the packages where the command is missing.
needs() {
    local command=$1
    shift
    command -v "$command" >/dev/null && return
    if ! command -v apt-get >/dev/null; then
        echo "there is no $command, and no apt-get to install $* with" >&2
        return 1
    fi
    local root=()
    if [ "$(id -u)" -ne 0 ] && command -v sudo >/dev/null; then root=(sudo); fi
    "${root[@]}" apt-get update
    "${root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends "$@"
}
