#!/bin/sh
# Install Charioteer from the current directory into the folder in the first argument, as a virtual environment without
# pip:
#
#   EXTRAS=torch,otel sh deploy/install.sh /opt/charioteer
#   ONNXRUNTIME="onnxruntime-gpu[cuda,cudnn]" sh deploy/install.sh /opt/charioteer
#   LOCKED=no EXTRAS=maite sh deploy/install.sh /opt/charioteer
#   TRANSFORMERS=no sh deploy/install.sh /opt/charioteer
#
# The packages come from the locks in deploy/requirements, by version and SHA-256, from wheels only, so that none of their
# code runs during the installation. LOCKED=no uses the versions that pyproject.toml allows, for extras without a lock and
# for other builds of a package. ONNXRUNTIME has no lock. Only the user who runs this can write to the folder afterwards.
# share/charioteer gets the environment's schema and a list of all installed packages (CycloneDX).
set -eu
umask 022

prefix=$1
extras=${EXTRAS:+"[$EXTRAS]"}
python=${PYTHON:-python3}
case "${TRANSFORMERS:-yes},${EXTRAS:-}," in
    no,*,torch,* | no,torch,*)
        echo "The extra torch runs models with transformers: leave TRANSFORMERS=no out" >&2
        exit 1
        ;;
esac

"$python" -m venv --without-pip "$prefix"
pip() {
    "$python" -m pip --python "$prefix/bin/python" --disable-pip-version-check --no-input "$@"
}
if [ "${LOCKED:-yes}" = no ]; then
    pip install --no-cache-dir --no-compile --quiet ".$extras"
else
    set -- --requirement deploy/requirements/base.txt
    for extra in $(echo "${EXTRAS:-}" | tr ',' ' '); do
        if [ ! -f "deploy/requirements/$extra.txt" ]; then
            echo "There is no lock for the extra $extra; it can be installed with LOCKED=no" >&2
            exit 1
        fi
        set -- "$@" --requirement "deploy/requirements/$extra.txt"
    done
    pip install --no-cache-dir --no-compile --quiet --require-hashes --no-deps --only-binary :all: "$@"

    # Locked tools also build Charioteer's own wheel, in a temporary folder.
    build=$(mktemp -d)
    trap 'rm -rf "$build"' EXIT
    "$python" -m venv --without-pip "$build/tools"
    pip --python "$build/tools/bin/python" install --no-cache-dir --quiet --require-hashes --no-deps \
        --only-binary :all: --requirement deploy/requirements/build.txt
    pip --python "$build/tools/bin/python" wheel --quiet --no-deps --no-build-isolation --wheel-dir "$build" .
    pip install --no-cache-dir --no-compile --quiet --no-deps --no-index "$build"/charioteer-*.whl
fi
# The builds of ONNX Runtime are packages of different names with the same files: uninstall one before installing another.
if [ -n "${ONNXRUNTIME:-}" ]; then
    pip uninstall --quiet --yes onnxruntime
    pip install --no-cache-dir --no-compile --quiet "$ONNXRUNTIME"
fi

# Nothing imports these: Litestar makes examples with the first two, and huggingface_hub downloads with the last.
pip uninstall --quiet --yes faker polyfactory hf-xet
if [ "${TRANSFORMERS:-yes}" = no ]; then
    pip uninstall --quiet --yes transformers annotated-doc annotated-types filelock httpcore2 httpx2 huggingface-hub \
        llguidance pydantic pydantic-core regex safetensors shellingham tokenizers truststore typer typing-inspection
fi
"$prefix/bin/python" -B deploy/trim.py

mkdir -p "$prefix/share/charioteer"
"$prefix/bin/charioteer" env-schema > "$prefix/share/charioteer/environment.schema.json"
"$prefix/bin/python" -B deploy/sbom.py > "$prefix/share/charioteer/sbom.cdx.json"
chmod -R go-w "$prefix"
du -sm "$prefix" | cut -f 1 | sed 's/$/ MB installed/'
