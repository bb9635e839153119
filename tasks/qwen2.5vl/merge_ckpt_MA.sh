#!/usr/bin/env bash
exec bash "$(dirname -- "${BASH_SOURCE[0]}")/../qwen2.5vl-32b/merge_ckpt_MA.sh" "$@"
