#!/usr/bin/env bash
exec bash "$(dirname -- "${BASH_SOURCE[0]}")/../qwen2.5vl-32b/launch_all.sh" "$@"
