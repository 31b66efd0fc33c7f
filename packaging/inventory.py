"""Writes what a binary is made of: inventory.py TARGET DIRECTORY.

sbom.cdx.json (CycloneDX) names each crate with its licence and the hash of its source;
THIRD-PARTY.txt has their licence texts. Both list what is linked for TARGET, and nothing else.
"""

import json
import os
import pathlib
import subprocess
import sys
import tomllib
import uuid
from datetime import datetime, timezone

from cyclonedx.model import HashAlgorithm, HashType
from cyclonedx.model.bom import Bom
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.model.license import LicenseExpression
from cyclonedx.output.json import JsonV1Dot6
from cyclonedx.validation.json import JsonStrictValidator
from cyclonedx.schema import SchemaVersion
from packageurl import PackageURL

ROOT = "ratekeeper-cli"
TEXTS = ("LICENSE*", "LICENCE*", "license*", "COPYING*", "NOTICE*", "UNLICENSE*", "COPYRIGHT*")

target, directory = sys.argv[1], pathlib.Path(sys.argv[2])
cargo = ["cargo", "metadata", "--format-version=1", "--locked", "--filter-platform", target]
metadata = json.loads(subprocess.check_output(cargo))
packages = {(package["name"], package["version"]): package for package in metadata["packages"]}
sums = {
    (entry["name"], entry["version"]): entry.get("checksum")
    for entry in tomllib.loads(pathlib.Path("Cargo.lock").read_text())["package"]
}


tree = ["cargo", "tree", f"--package={ROOT}", f"--target={target}", "--edges=normal,no-proc-macro"]
lines = subprocess.check_output([*tree, "--prefix=none", "--format={p}", "--locked"], text=True)
linked = sorted({tuple(line.split(" v", 1)) for line in lines.replace(" (*)", "").splitlines()})
crates = [packages[name, rest.split()[0]] for name, rest in linked]
version = next(crate["version"] for crate in crates if crate["name"] == ROOT)
bom = Bom(serial_number=uuid.uuid5(uuid.NAMESPACE_URL, f"ratekeeper {version} {target}"))
bom.metadata.timestamp = datetime.fromtimestamp(int(os.environ["SOURCE_DATE_EPOCH"]), timezone.utc)
texts = {}
for crate in crates:
    name, version, licence = crate["name"], crate["version"], crate["license"]
    component = Component(
        name=name,
        version=version,
        type=ComponentType.APPLICATION if name == ROOT else ComponentType.LIBRARY,
        bom_ref=f"{name}@{version}",
        purl=PackageURL("cargo", None, name, version),
        licenses=[LicenseExpression((licence or "LicenseRef-file").replace("/", " OR "))],
    )
    if checksum := sums[name, version]:
        component.hashes.add(HashType(alg=HashAlgorithm.SHA_256, content=checksum))
    if name == ROOT:
        bom.metadata.component = component
    else:
        bom.components.add(component)
    if crate["source"] is None:
        continue  # ours: LICENSE-APACHE and LICENSE-MIT
    home = pathlib.Path(crate["manifest_path"]).parent
    files = sorted({file for pattern in TEXTS for file in home.glob(pattern) if file.is_file()})
    for file in files:
        text = file.read_text(errors="replace").strip()
        texts.setdefault(text, []).append(f"{name} {version} ({licence})")

bom.register_dependency(bom.metadata.component, bom.components)
document = JsonV1Dot6(bom).output_as_string(indent=1)
if error := JsonStrictValidator(SchemaVersion.V1_6).validate_str(document):
    sys.exit(f"the SBOM breaks its schema: {error}")
(directory / "sbom.cdx.json").write_text(document)
line = "=" * 80
notices = [f"{line}\n{', '.join(crates)}\n{line}\n\n{text}\n\n" for text, crates in texts.items()]
(directory / "THIRD-PARTY.txt").write_text("\n".join(notices))
print(f"{len(crates)} crates")
