#!/bin/sh
# Makes .venv from uv.lock, given nothing but a Python of 3.11 to 3.13. Quick when nothing changed.
#
#   PYTHON=/path/to/python3   the interpreter to use, instead of the first fitting one on PATH
#   UV=/path/to/uv            a uv of your own, instead of the pinned one from PyPI
#   UV_CACHE_DIR              honoured, as every setting of uv and pip is
set -eu

UV_VERSION=0.13.9
cd "$(dirname "$0")/.."

say() { echo "bootstrap: $*"; }
fail() { echo "bootstrap: error: $*" >&2; exit 1; }
fits() { "$1" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))' >/dev/null 2>&1; }

python=
for candidate in ${PYTHON:-python3 python3.13 python3.12 python3.11}; do
    if fits "$candidate"; then python=$candidate; break; fi
done
if [ -z "$python" ]; then
    found=$(${PYTHON:-python3} --version 2>&1 | grep . | head -n 1 || true)
    fail "Rackyard needs Python 3.11, 3.12 or 3.13, and none is on PATH (${PYTHON:-python3} says: ${found:-nothing}).
       Install one (Debian: apt-get install python3 python3-venv), or name it: PYTHON=/path/to/python3.11 make"
fi

wanted="$UV_VERSION $("$python" -c 'import sys; print(sys.executable, sys.version.split()[0])') $PWD
$(cat pyproject.toml uv.lock | sha256sum)"
if [ -x .venv/bin/rackyard ] && [ -f .env-ready ] && [ "$(cat .env-ready)" = "$wanted" ]; then
    exit 0
fi

uv=${UV:-.venv-tools/bin/uv}
if [ -z "${UV:-}" ] && [ "$("$uv" --version 2>/dev/null | cut -d' ' -f2)" != "$UV_VERSION" ]; then
    say "getting uv $UV_VERSION into .venv-tools"
    rm -rf .venv-tools
    "$python" -m venv .venv-tools || fail "$python has no venv module (Debian: apt-get install python3-venv)"
    echo '*' > .venv-tools/.gitignore
    .venv-tools/bin/python -m pip install --quiet --disable-pip-version-check "uv==$UV_VERSION" \
        || fail "pip could not install uv $UV_VERSION; is PyPI, or your mirror of it, reachable?"
fi

say "installing what uv.lock names into .venv with $("$python" --version) (PyTorch is large: minutes the first time)"
rm -f .env-ready
UV_PROJECT_ENVIRONMENT=.venv UV_PYTHON_DOWNLOADS=never "$uv" sync --frozen --all-extras --compile-bytecode --python "$("$python" -c 'import sys; print(sys.executable)')" \
    || fail "uv sync failed; the lines above say why"
# Without bytecode (some environments forbid writing it) importing torch takes twice as long, at every start of a rank.
.venv/bin/python -m compileall -q src
echo "$wanted" > .env-ready
say "ready: .venv/bin/rackyard"
