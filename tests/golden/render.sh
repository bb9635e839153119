#!/usr/bin/env bash
# Write what every task renders to on every release that ships its family.
#
# usage: bash tests/golden/render.sh TREES GOLDEN
#
# TREES/<release>/tasks/<task> gets the rendered folders; GOLDEN/<task>@<release>.txt the words that
# torchrun is started with, one per line, and GOLDEN/digests.txt a digest of every other rendered file; lib/ is copied, not rendered.

set -euo pipefail
shopt -s inherit_errexit

REPO=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/../.." && pwd)
PYTHON=${PYTHON:-$REPO/.venv/bin/python}

# cells: a line "<task> <release>" for each task and release
cells() {
  "$PYTHON" -m taskpack models --json \
    | "$PYTHON" -c 'import json, sys
for task in json.load(sys.stdin)["models"]:
    for release in task["releases"]:
        print(task["model"], release)'
}

# words_of <tasks folder> <task>: what torchrun is started with, one word per line
words_of() {
  local line words
  line=$(bash "$1/$2"/finetune_*.sh --dry-run 2>/dev/null)
  eval "words=($line)"
  printf '%s\n' "${words[@]}"
}

main() {
  local trees=$1 golden=$2 task release
  cd -- "$REPO"
  mkdir -p "$trees" "$golden"
  while read -r task release; do
    "$PYTHON" -m taskpack render "$task" --release "$release" \
      --out "$trees/$release/tasks/$task" >/dev/null
    words_of "$trees/$release/tasks" "$task" >"$golden/$task@$release.txt"
  done < <(cells)
  (cd -- "$trees" && find . -type f -not -path '*/lib/*' | LC_ALL=C sort | sed 's#^\./##' | xargs -d '\n' sha256sum) \
    | sed -E 's/^([0-9a-f]{16})[0-9a-f]+/\1/' >"$golden/digests.txt"
}

main "$@"
