#!/usr/bin/env bash
# Installs each artifact where nothing else is, and runs it until it refuses a request:
# check.sh OUT CPU. The image of another processor needs its emulator, qemu-CPU-static.
set -euo pipefail
if [[ ! ${WORK-} ]]; then
    # Mounts, ports and processes of our own.
    WORK=$(mktemp --directory)
    export WORK
    trap 'rm -rf "$WORK"' EXIT
    unshare --mount --net --pid --fork --kill-child --mount-proc "$0" "$@"
    exit
fi
out=$1 cpu=$2 work=$WORK
ip link set lo up

# Runs a command in a root directory as a user; another processor's is emulated.
within() {
    local root=$1 user=$2
    shift 2
    if [[ $cpu == "$(uname --machine)" ]]; then
        ${START-} chroot --userspec="$user" "$root" "$@"
    else
        [[ -e $root/qemu ]] || install "/usr/bin/qemu-$cpu-static" "$root/qemu"
        ${START-} chroot --userspec="$user" "$root" /qemu "$@"
    fi
}

# refuses ROOT USER PROGRAM POLICY: five log-ins pass, and the sixth is refused.
refuses() {
    local root=$1 user=$2 program=$3
    START=exec within "$root" "$user" "$program" run "$4" > "$work/log" 2>&1 &
    local service=$! tries=0 code
    until within "$root" "$user" "$program" health > "$work/health" 2>&1; do
        ((++tries < 200)) || { cat "$work/log" "$work/health"; return 1; }
        sleep 0.1
    done
    for attempt in 1 2 3 4 5 6; do
        code=0
        within "$root" "$user" "$program" check login method=POST path=/login ip=192.0.2.1 > /dev/null || code=$?
        [[ $code == $((attempt == 6)) ]] || { echo "log-in $attempt: exit code $code"; return 1; }
    done
    kill -TERM "$service"
    wait "$service" || { cat "$work/log"; return 1; }
}

(cd "$out" && sha256sum --check --quiet SHA256SUMS)
[[ $cpu != x86_64 ]] || while read -r _ file; do
    grep --quiet --fixed-strings "\`$file\`" README.md || { echo "README.md does not name $file"; exit 1; }
done < "$out/SHA256SUMS"

tar --extract --file "$out"/ratekeeper-*-"$cpu"-linux.tar.gz --directory="$work" --strip-components=1 --one-top-level=archive
refuses "$work/archive" 65534:65534 /ratekeeper /ratekeeper.toml
for file in completions/ratekeeper.bash completions/_ratekeeper completions/ratekeeper.fish \
    completions/_ratekeeper.ps1 man/ratekeeper-run.1 man/ratekeeper-bans-add.1 \
    sbom.cdx.json THIRD-PARTY.txt LICENSE-MIT \
    examples/monitoring/{ratekeeper.rules.yml,grafana.json} docs/guide/dashboard/light.png; do
    [[ -s $work/archive/$file ]] || { echo "the archive has no $file"; exit 1; }
done
if [[ $cpu == "$(uname --machine)" ]]; then
    # The commands of the guide, one after the other: the last of six log-ins is refused.
    mkdir "$work/typed"
    cp "$out"/ratekeeper-*-"$cpu"-linux.tar.gz "$work/typed"
    mapfile -t lines < <(sed --quiet '/^- \*\*archive/,/^- \*\*Debian/{/Debian/!p}' docs/guide/deploy.md \
        | grep --only-matching '`[^`]*`' | tr --delete '`')
    (
        cd "$work/typed"
        for line in "${lines[@]}"; do
            eval "$line" || true
            [[ $line != *'&' ]] || timeout 20 bash -c 'until ./ratekeeper health; do sleep 0.1; done'
        done
        kill -TERM $!
        wait
    ) > "$work/log" 2>&1 || { cat "$work/log"; exit 1; }
    [[ $(grep --count '^denied' "$work/log") == 1 ]] || { cat "$work/log"; exit 1; }
fi
page=$(within "$work/archive" 65534:65534 /ratekeeper help jitter | sed -n 's/^more: \([^#]*\).*/\1/p')
[[ -f $work/archive/$page ]] || { echo "the archive has no $page, which help names"; exit 1; }
bash -n "$work/archive/completions/ratekeeper.bash"
man --warnings=all --local-file "$work/archive/man/ratekeeper-run.1" > /dev/null

mkdir "$work/layout"
tar --extract --file "$out"/ratekeeper-*-"$cpu".oci.tar.gz --directory="$work/layout"
name=$(umoci ls --layout "$work/layout")
for file in packaging/image/{compose,kubernetes}.yaml docs/guide/deploy.md; do
    grep --quiet --fixed-strings "$name" "$file" || { echo "$file does not name the image $name"; exit 1; }
done
umoci --log=error unpack --image "$work/layout:$name" "$work/bundle"
image=$work/bundle/rootfs
within "$image" 0:0 /usr/bin/ratekeeper --version > /dev/null # brings the emulator
mount --bind "$image" "$image"
mount --options=remount,bind,ro "$image"
python3 - "$work/bundle/config.json" <<'PYTHON'
import json, sys
process = json.load(open(sys.argv[1]))["process"]
assert (process["user"]["uid"], process["user"]["gid"]) == (65532, 65532), process["user"]
assert process["args"] == ["/usr/bin/ratekeeper", "run", "/etc/ratekeeper/ratekeeper.toml"], process["args"]
PYTHON
refuses "$image" 65532:65532 /usr/bin/ratekeeper /etc/ratekeeper/ratekeeper.toml

[[ $cpu == "$(uname --machine)" ]] || exit 0 # maintainer scripts run on this machine only
# This Debian, seen through a layer that is thrown away.
mkdir "$work"/{upper,scratch,debian}
mount -t tmpfs tmpfs "$work/upper"
mkdir "$work"/upper/{files,work}
mount -t overlay overlay -o "lowerdir=/,upperdir=$work/upper/files,workdir=$work/upper/work" "$work/debian"
mount -t proc proc "$work/debian/proc"
mount --bind /dev "$work/debian/dev"
cp "$out"/ratekeeper_*.deb "$work/debian/ratekeeper.deb"
chroot "$work/debian" dpkg --install /ratekeeper.deb > "$work/log" 2>&1 || { cat "$work/log"; exit 1; }
refuses "$work/debian" ratekeeper:ratekeeper /usr/bin/ratekeeper /etc/ratekeeper/ratekeeper.toml
units="/lib/systemd/system/ratekeeper.service /lib/systemd/system/ratekeeper.socket"
chroot "$work/debian" systemd-analyze verify $units
chroot "$work/debian" systemd-analyze security --offline=true --threshold=20 ratekeeper.service > "$work/log" \
    || { cat "$work/log"; exit 1; }

# The service by its socket unit: systemd's socket starts it, and hears that it is ready.
cat > "$work/debian/notified" <<'PYTHON'
import os, socket, subprocess, time
heard = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
heard.bind("/notify")
os.chmod("/notify", 0o777)
heard.settimeout(30)
command = ["systemd-socket-activate", "-E", "NOTIFY_SOCKET=/notify", "-l", "127.0.0.1:8080", "-l", "127.0.0.1:9090",
           "/usr/bin/ratekeeper", "run", "/etc/ratekeeper/ratekeeper.toml"]
service = subprocess.Popen(command, user="ratekeeper", group="ratekeeper", stdout=subprocess.DEVNULL)
for _ in range(300):
    try:
        socket.create_connection(("127.0.0.1", 8080), timeout=1).close()
        break
    except OSError:
        time.sleep(0.1)
assert b"READY=1" in heard.recv(1000)
assert subprocess.run(["ratekeeper", "health"], stdout=subprocess.DEVNULL).returncode == 0
service.terminate()
assert b"STOPPING=1" in heard.recv(1000)
assert service.wait(30) == 0
PYTHON
chroot "$work/debian" python3 /notified 2> "$work/log" || { cat "$work/log"; exit 1; }
chroot "$work/debian" dpkg --purge ratekeeper > "$work/log" 2>&1 || { cat "$work/log"; exit 1; }
[[ ! -e $work/debian/etc/ratekeeper && ! -e $work/debian/usr/bin/ratekeeper ]] || { echo "a purge leaves files"; exit 1; }
