#!/usr/bin/env bash
# Builds the oracle's locked Python environment in the given directory (about two minutes and 3.4 GB; CPython 3.11, gcc and readelf needed).
# Usage: setup.sh DIRECTORY
set -euo pipefail
here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
target="${1:?usage: setup.sh DIRECTORY}"
"${PYTHON:-python3.11}" -m venv "$target"
"$target/bin/pip" install --quiet --no-deps --require-hashes -r "$here/requirements.txt"
"$target/bin/python" "$here/cuda_stubs.py" "$target/lib/python3.11/site-packages"
# `oracle-python` starts Python as every recording needs it: the stub libraries on the loader path and a fixed hash seed.
cat > "$target/bin/oracle-python" <<SH
#!/bin/sh
export LD_LIBRARY_PATH="\$(dirname "\$(dirname "\$(readlink -f "\$0")")")/lib/python3.11/site-packages/nvidia/stub/lib"
export PYTHONHASHSEED=0
exec "\$(dirname "\$(readlink -f "\$0")")/python" "\$@"
SH
chmod +x "$target/bin/oracle-python"
echo "ready: $target/bin/oracle-python $here/record.py SCENARIO... --out DIR"
