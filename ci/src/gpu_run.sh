#!/usr/bin/env bash
# Runs what `cargo ci gpu` packed: run.sh [tests|verify|demo] [ARGUMENTS]; without arguments all three on cuda:0.
# It stands in target/gpu of a copy of the repository, and needs the NVIDIA driver but no Rust.
set -euo pipefail
pack=$(cd "$(dirname "$0")" && pwd)
cd "$pack/../.."

tests() {
    "$pack/cargo-nextest" nextest run --archive-file "$pack/tests.tar.zst" --workspace-remap . "$@"
}

verify() {
    "$pack/cake-verify" "$@"
}

demo() {
    "$pack/fit_text" "$@"
}

case "${1:-all}" in
    tests | verify | demo) "$@" ;;
    all)
        tests
        verify run --device cuda:0 --report "$pack/report"
        demo --device cuda:0 --check
        ;;
    *)
        echo "expected tests, verify or demo, found $1" >&2
        exit 2
        ;;
esac
