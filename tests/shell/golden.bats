#!/usr/bin/env bats
# Every task on every release: what it renders to is what tests/golden/render says, and it is clean.
# `make golden` rewrites these files; read the difference.

setup_file() {
  load helpers
  bash "$REPO/tests/golden/render.sh" "$BATS_FILE_TMPDIR/trees" "$BATS_FILE_TMPDIR/golden"
}

setup() {
  load helpers
  cd "$BATS_FILE_TMPDIR" || return
}

@test "every task starts torchrun with the words of its golden file" {
  diff -r golden "$REPO/tests/golden/render"
}

@test "every release has its tasks" {
  [[ $(find trees -name 'finetune_*.sh' | wc -l) -eq 32 ]]
}

@test "shellcheck and shfmt have nothing to say about any of them" {
  cp "$REPO/.shellcheckrc" .
  # one of several equal files is enough
  find trees -name '*.sh' -not -path '*/lib/*' -exec sha256sum {} + | sort | awk '!seen[$1]++ { print $2 }' >scripts
  xargs -d '\n' "$REPO/.venv/bin/shellcheck" <scripts
  xargs -d '\n' "$REPO/.venv/bin/shfmt" -i 2 -ci -bn -d <scripts
}

@test "a real start hands the same words to torchrun" {
  local release script
  mkdir -p bin calls
  CALLS=$PWD/calls BIN=$PWD/bin
  export CALLS PATH="$BIN:$PATH"
  stub torchrun
  for release in trees/*; do
    for script in "$release"/tasks/*/finetune_*.sh; do
      rm -f calls/torchrun
      NODE_RANK=0 MASTER_ADDR=localhost SKIP_CHECKS=1 bash "$script" >/dev/null 2>&1
      task=$(basename "$(dirname "$script")")
      diff <(tail -n +2 "golden/$task@$(basename "$release").txt") calls/torchrun
    done
  done
}
