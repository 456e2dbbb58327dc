#!/usr/bin/env bash
# Builds the native kernels with the sanitizers of gcc and runs their tests: addresses and undefined
# behaviour over all operations, and threads over those that are shared out. A program without Python
# puts the thread pool under both, and looks for leaks. Needs g++.
#
#   scripts/sanitize.sh VENV [address|thread]
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
venv=$(realpath "$1")
what=${2:-all}
tools=build/sanitize-tools # of its own: nothing is added to VENV
"$venv/bin/python" -m venv "$tools"
"$tools/bin/python" -m pip --disable-pip-version-check install --quiet nanobind cmake ninja
export PATH="$PWD/$tools/bin:$PATH"
# The packages of VENV, but not what its .pth files do: an editable install of Headway would come
# before any path, and with it the kernels that are not sanitized.
"$venv/bin/python" -c 'import sys; print(*(p for p in sys.path if p.endswith("-packages")), sep="\n")' \
    > "$("$tools/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/venv.pth"

library() { g++ -print-file-name="$1"; }

build() { # NAME SANITIZERS: a copy of the package with such kernels, and the pool's test
    cmake -S . -B "build/sanitize-$1" -G Ninja -DHEADWAY_SANITIZE="$2" \
        -DPython_EXECUTABLE="$tools/bin/python" \
        -Dnanobind_DIR="$("$tools/bin/python" -m nanobind --cmake_dir)" > /dev/null
    cmake --build "build/sanitize-$1"
    rm -rf "build/sanitize-$1/src" && cp -r src "build/sanitize-$1/src"
    rm -f "build/sanitize-$1/src/headway/kernels/"_native*.so
    cp "build/sanitize-$1/"_native*.so "build/sanitize-$1/src/headway/kernels/"
}

run() { # NAME ARGUMENTS...
    PYTHONPATH="build/sanitize-$1/src" "$tools/bin/python" scripts/sanitized_tests.py \
        "build/sanitize-$1" -p no:cacheprovider -q -s "${@:2}"
}

if [[ $what != thread ]]; then
    build address address,undefined
    export UBSAN_OPTIONS=print_stacktrace=1,halt_on_error=1
    build/sanitize-address/threads_test
    # Python itself leaks by design; the C++ library must be there before the sanitizer looks for it
    ASAN_OPTIONS=detect_leaks=0 \
        LD_PRELOAD="$(library libasan.so) $(library libubsan.so) $(library libstdc++.so)" \
        run address tests/kernels
fi
if [[ $what != address ]]; then
    build thread thread
    export TSAN_OPTIONS=halt_on_error=1
    build/sanitize-thread/threads_test
    LD_PRELOAD="$(library libtsan.so)" \
        run thread tests/kernels -k "cut or depend or blocks or threads"
fi
