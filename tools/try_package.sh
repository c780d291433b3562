#!/usr/bin/env bash
# Install a wheel or a source archive as a stranger would, away from any checkout, and use it.
set -euo pipefail
package=$(realpath "$1")
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
"${PYTHON:-python3}" -m venv "$place/env"
"$place/env/bin/python" -m pip install --quiet "$package[cli]"
cd "$place"
export PATH="$place/env/bin:$PATH"
mgpa doctor
mgpa simulate --people 20 --out table.npz
mgpa fit table.npz --out map.safetensors
mgpa apply map.safetensors table.npz --out corrected.npz
mgpa study list
echo "$(basename "$package"): installed and used."
