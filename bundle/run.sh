#!/usr/bin/env bash
# Runs this bundle on a machine without network: installs the carried wheels beside it, runs the contracts on the device,
# records what passed in tests/proofs/, then runs the GPU tests. Arguments are names of contracts; none means all.
#
#   PYTHON  the interpreter whose torch and JAX are used (python3)     DEVICE  cuda or cpu (cuda)
#   JOBS    worker processes (half the cores)                          EXAMPLES  drawn cases beside the edges (40)
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
python=${PYTHON:-python3} device=${DEVICE:-cuda} cores=$(getconf _NPROCESSORS_ONLN)
jobs=${JOBS:-$(((cores + 1) / 2))}

# Beside it and not into a virtual environment: the interpreter may itself be of one, whose packages another cannot see.
# Other libraries on that machine give other warnings, hence these are no errors in its tests.
[ -d .site ] || "$python" -m pip install --quiet --no-index --no-deps --no-compile --target .site wheels/*.whl || exit 2
export PYTHONPATH="$PWD/.site:$PWD" ANNOTATOR_ROOT="$PWD" HF_HUB_OFFLINE=1 XLA_PYTHON_CLIENT_PREALLOCATE=false
"$python" -c "import ray" 2>/dev/null || PYTHONPATH="$PYTHONPATH:$PWD/standins"

"$python" -m annotator.cli conform "$@" --device "$device" --jobs "$jobs" --examples "${EXAMPLES:-40}" --record
conformed=$?
ANNOTATOR_CONTRACTS="$*" "$python" -m pytest -q -rs -k "$device" -o filterwarnings=default -p no:cacheprovider tests/test_cuda.py
tested=$?
echo "conform ended with $conformed, pytest with $tested; proofs: $(ls tests/proofs/*.json)"
[ "$conformed" -eq 0 ] && [ "$tested" -eq 0 ]
