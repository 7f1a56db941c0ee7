#!/bin/sh
# Installs Charioteer from the current directory into the folder named first, as a virtual environment without pip:
#
#   EXTRAS=torch,otel sh deploy/install.sh /opt/charioteer
#
# Whoever runs it may write there afterwards, and nobody else. Its environment schema lies in share/charioteer.
set -eu
umask 022

prefix=$1
extras=${EXTRAS:+"[$EXTRAS]"}
python=${PYTHON:-python3}

"$python" -m venv --without-pip "$prefix"
"$python" -m pip --python "$prefix/bin/python" --disable-pip-version-check --no-input \
    install --no-cache-dir --quiet ".$extras"

mkdir -p "$prefix/share/charioteer"
"$prefix/bin/charioteer" env-schema > "$prefix/share/charioteer/environment.schema.json"
chmod -R go-w "$prefix"
du -sm "$prefix" | cut -f 1 | sed 's/$/ MB installed/'
