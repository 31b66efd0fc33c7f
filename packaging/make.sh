#!/usr/bin/env bash
# Makes the archive, the Debian package and the image of a binary, the same bytes each time:
# make.sh BINARY CPU OUT. PAGES has completions and man pages, INVENTORY the licences and the SBOM.
set -euo pipefail
binary=$1 cpu=$2 out=$3
version=$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -1)
case $cpu in x86_64) debian=amd64 ;; aarch64) debian=arm64 ;; esac
umask 022
rm -rf "$out"
mkdir -p "$out/tree"

# Sets the times of what is packed.
settle() { find "$1" -exec touch --no-dereference --date="@$SOURCE_DATE_EPOCH" {} +; }
pack() { tar --create --sort=name --format=gnu --owner=0 --group=0 --numeric-owner "$@"; }

# The guide with its pictures, and the alerts and the dashboard that it tells operators to copy.
documents() {
    tar --create --mode=u=rwX,go=rX docs/guide docs/openapi.yaml examples/monitoring | tar --extract --directory="$1"
}

name=ratekeeper-$version-$cpu-linux
archive=$out/tree/$name
install -D --mode=755 "$binary" "$archive/ratekeeper"
install -D --mode=644 --target-directory="$archive/completions" "$PAGES"/*ratekeeper{.bash,.fish,.ps1} "$PAGES/_ratekeeper"
install -D --mode=644 --target-directory="$archive/man" "$PAGES"/*.1
install -D --mode=644 --target-directory="$archive/systemd" packaging/ratekeeper.{service,socket}
install --mode=644 examples/policies/quickstart.toml "$archive/ratekeeper.toml"
install --mode=644 LICENSE-* "$INVENTORY/THIRD-PARTY.txt" "$INVENTORY/sbom.cdx.json" "$archive"
documents "$archive"
settle "$archive"
pack --directory="$out/tree" "$name" | gzip --no-name --best > "$out/$name.tar.gz"

deb=$out/tree/deb
install -D --mode=755 "$binary" "$deb/usr/bin/ratekeeper"
install -D --mode=644 packaging/debian/ratekeeper.toml "$deb/etc/ratekeeper/ratekeeper.toml"
install -D --mode=644 --target-directory="$deb/lib/systemd/system" packaging/ratekeeper.{service,socket}
share=$deb/usr/share
install -D --mode=644 "$PAGES/ratekeeper.bash" "$share/bash-completion/completions/ratekeeper"
install -D --mode=644 "$PAGES/_ratekeeper" "$share/zsh/vendor-completions/_ratekeeper"
install -D --mode=644 "$PAGES/ratekeeper.fish" "$share/fish/vendor_completions.d/ratekeeper.fish"
install -D --mode=644 --target-directory="$share/man/man1" "$PAGES"/*.1
gzip --no-name --best "$share"/man/man1/*
install -D --mode=644 <(cat LICENSE-APACHE LICENSE-MIT "$INVENTORY/THIRD-PARTY.txt") "$share/doc/ratekeeper/copyright"
install -D --mode=755 --target-directory="$deb/DEBIAN" packaging/debian/{postinst,prerm,postrm}
sed "s/@VERSION@/$version/; s/@ARCHITECTURE@/$debian/" packaging/debian/control > "$deb/DEBIAN/control"
echo /etc/ratekeeper/ratekeeper.toml > "$deb/DEBIAN/conffiles"
documents "$share/doc/ratekeeper"
settle "$deb"
dpkg-deb --root-owner-group -Zxz --build "$deb" "$out/ratekeeper_${version}_$debian.deb" > /dev/null

layer=$out/tree/layer
install -D --mode=755 "$binary" "$layer/usr/bin/ratekeeper"
install -D --mode=644 packaging/image/ratekeeper.toml "$layer/etc/ratekeeper/ratekeeper.toml"
install -D --mode=644 /etc/ssl/certs/ca-certificates.crt "$layer/etc/ssl/certs/ca-certificates.crt"
install -D --mode=644 --target-directory="$layer/usr/share/doc/ratekeeper" LICENSE-* "$INVENTORY/THIRD-PARTY.txt"
settle "$layer"
layout=$out/tree/image image=$out/tree/image:ratekeeper:$version created=$(date --utc --date="@$SOURCE_DATE_EPOCH" +%Y-%m-%dT%H:%M:%SZ)
umoci init --layout "$layout"
umoci new --image "$image"
for part in usr etc; do
    umoci insert --history.created "$created" --image "$image" "$layer/$part" "/$part"
done
umoci config --history.created "$created" --image "$image" --created "$created" \
    --architecture "$debian" --os linux --config.user 65532:65532 \
    --config.entrypoint /usr/bin/ratekeeper --config.cmd run --config.cmd /etc/ratekeeper/ratekeeper.toml \
    --config.exposedports 8080/tcp --config.label org.opencontainers.image.version="$version"
umoci gc --layout "$layout"
settle "$layout"
pack --directory="$layout" . | gzip --no-name --best > "$out/ratekeeper-$version-$cpu.oci.tar.gz"

rm -rf "$out/tree"
(cd "$out" && sha256sum ratekeeper* > SHA256SUMS)
