#!/usr/bin/env bash
# Runs what `cargo ci gpu` packed: run.sh [tests|verify|demo|devices] [ARGUMENTS]; without arguments the first three on
# cuda:0. It stands in target/gpu of a copy of the repository, and needs the NVIDIA driver but no Rust; `devices` needs a
# python3 with PyTorch too, and two GPUs, or its argument --shared-gpu.
set -euo pipefail
pack=$(cd "$(dirname "$0")" && pwd)
cd "$pack/../.."

tests() {
    [ -e "$pack/cargo-nextest" ] || gzip --decompress --keep "$pack/cargo-nextest.gz"
    "$pack/cargo-nextest" nextest run --archive-file "$pack/tests.tar.zst" --workspace-remap . "$@"
}

verify() {
    "$pack/cake-verify" "$@"
}

demo() {
    "$pack/fit_text" "$@"
}

devices() {
    local status=0
    verify run --device cuda:0 --filter devices || status=1
    rm -rf "$pack/python"
    python3 -m zipfile -e "$pack"/cake_py-*.whl "$pack/python"
    PYTHONPATH="$pack/python:crates/cake-py/tests" python3 -m two_gpus "$@" || status=1
    return $status
}

case "${1:-all}" in
    tests | verify | demo | devices) "$@" ;;
    all)
        tests
        verify run --device cuda:0 --report "$pack/report"
        demo --device cuda:0 --check
        ;;
    *)
        echo "expected tests, verify, demo or devices, found $1" >&2
        exit 2
        ;;
esac
