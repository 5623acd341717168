#!/bin/sh
# release.sh PYTHON FOLDER: wheel, source archive, software bill of materials, container file, checksums. The source archive is built
# into a wheel of its own, which has to hold the same files.
set -eu
python=$1
folder=$2
root=$(cd "$(dirname "$0")/.." && pwd)
cd "$root"
rm -rf "$folder"
mkdir -p "$folder"
folder=$(cd "$folder" && pwd)
version=$("$python" -c 'import re; print(re.search(r"^version = \"(.+)\"", open("pyproject.toml").read(), re.M)[1])')
grep -q "^## $version - [0-9]" CHANGELOG.md || { echo "CHANGELOG.md has no dated part for $version: write '## $version - YYYY-MM-DD'." >&2; exit 1; }

sh tools/wheel.sh "$python" "$folder"

# What git has is what the archive holds: nothing that lies about in the checkout.
name=pyspark_upstream-$version
git archive --format=tar.gz --prefix="$name/" -o "$folder/$name.tar.gz" HEAD

unpacked=$(mktemp -d)
trap 'rm -rf "$unpacked"' EXIT
tar xzf "$folder/$name.tar.gz" -C "$unpacked"
sh "$unpacked/$name/tools/wheel.sh" "$python" "$unpacked/wheel"
"$python" - "$folder" "$unpacked/wheel" <<'END'
import sys, zipfile
from pathlib import Path
made, again = (zipfile.ZipFile(next(Path(each).glob("*.whl"))) for each in sys.argv[1:])
files = [{each.filename: each.CRC for each in archive.infolist()} for archive in (made, again)]
lacking = sorted(name for name in files[0].keys() | files[1].keys() if files[0].get(name) != files[1].get(name))
lacking = [name for name in lacking if not name.endswith("/RECORD")]
if lacking:
    sys.exit(f"the wheel and the source archive of HEAD differ in {lacking[:5]}: commit first")
END

"$python" tools/bill_of_materials.py "$version" > "$folder/$name.cdx.json"
sed "s/@VERSION@/$version/g" tools/Containerfile > "$folder/Containerfile"
cp constraints.txt "$folder/constraints.txt"
(cd "$folder" && sha256sum -- * > SHA256SUMS)
ls -l "$folder"
