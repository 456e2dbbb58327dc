#!/usr/bin/env bash
# Builds the portable kernels for 64-bit Arm and runs them in an emulator: every operation must give
# the same bits as a build for this machine. On Debian and Ubuntu it needs the packages g++,
# g++-aarch64-linux-gnu and qemu-user.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
build=build/arm
mkdir -p "$build"

compile() { # COMPILER OUTPUT OPTIONS...
    "$1" "${@:3}" -std=c++17 -O2 -Wall -Wextra -Wno-psabi -ffp-contract=off -fno-math-errno -Inative/src -static \
        native/tests/digest.cpp native/src/{cpu,formats,matrix,memory,ops,threads}.cpp \
        native/src/isa/portable.cpp -pthread -o "$2"
}

# The portable kernels only, with fused multiply-add as Arm has it.
compile g++ "$build/here" -mfma &
compile aarch64-linux-gnu-g++ "$build/arm"
wait $!
"$build/here" > "$build/here.txt"
qemu-aarch64 "$build/arm" > "$build/arm.txt"
diff "$build/here.txt" "$build/arm.txt"
echo "$(wc -l < "$build/arm.txt") digests of the Arm build are those of this machine's"
