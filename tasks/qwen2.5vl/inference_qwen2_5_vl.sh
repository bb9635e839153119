#!/usr/bin/env bash
exec bash "$(dirname -- "${BASH_SOURCE[0]}")/../qwen2.5vl-32b/inference_qwen2_5_vl.sh" "$@"
