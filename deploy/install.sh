#!/bin/sh
# Installs Charioteer from the current directory into the folder named first, as a virtual environment without pip:
#
#   EXTRAS=torch,otel sh deploy/install.sh /opt/charioteer
#   ONNXRUNTIME="onnxruntime-gpu[cuda,cudnn]" sh deploy/install.sh /opt/charioteer
#
# Whoever runs it may write there afterwards, and nobody else. Its environment schema lies in share/charioteer.
set -eu
umask 022

prefix=$1
extras=${EXTRAS:+"[$EXTRAS]"}
python=${PYTHON:-python3}

"$python" -m venv --without-pip "$prefix"
pip() {
    "$python" -m pip --python "$prefix/bin/python" --disable-pip-version-check --no-input "$@"
}
pip install --no-cache-dir --quiet ".$extras"
# The builds of ONNX Runtime are packages of different names with the same files in them: one goes before another comes.
if [ -n "${ONNXRUNTIME:-}" ]; then
    pip uninstall --quiet --yes onnxruntime
    pip install --no-cache-dir --quiet "$ONNXRUNTIME"
fi

mkdir -p "$prefix/share/charioteer"
"$prefix/bin/charioteer" env-schema > "$prefix/share/charioteer/environment.schema.json"
chmod -R go-w "$prefix"
du -sm "$prefix" | cut -f 1 | sed 's/$/ MB installed/'
