# Helpers of the start scripts. Each start script may be run again at any time: it starts what does not run.

# Whether it runs; one that was stopped by a signal goes on.
running() {
    pkill -CONT --exact "$1"
}

# wait_for SECONDS COMMAND…: until the command succeeds.
wait_for() {
    local deadline=$((SECONDS + $1))
    shift
    until "$@" >/dev/null 2>&1; do
        [ "$SECONDS" -lt "$deadline" ] || { echo "gave up waiting for: $*" >&2; return 1; }
        sleep 0.1
    done
}

# make_dirs MODE PARENT: a directory for each person below PARENT.
make_dirs() {
    local user
    for user in koala wombat; do
        install -d -o "$user" -g "$user" -m "$1" "$2/$user"
    done
}

start_sshd() {
    install -d -m 0755 /run/sshd
    [ -e /etc/ssh/testgrid_keys ] || install -m 0644 /dev/null /etc/ssh/testgrid_keys
    [ -e /etc/ssh/ssh_host_ed25519_key ] || ssh-keygen -q -t ed25519 -N '' -f /etc/ssh/ssh_host_ed25519_key
    running sshd || /usr/sbin/sshd
}
