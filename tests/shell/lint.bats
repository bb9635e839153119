#!/usr/bin/env bats
# Every rendered script and library is clean.

setup_file() {
  load helpers
  render_tasks
}

setup() {
  load helpers
  in_checkout
  PATH="$REPO/.venv/bin:$PATH"
}

# scripts: every shell file of the rendered tasks
scripts() {
  find tasks -name '*.sh' -o -name '*.sbatch' | sort
}

@test "shellcheck has nothing to say" {
  cp "$REPO/.shellcheckrc" .
  scripts | xargs -d '\n' shellcheck
}

@test "shfmt has nothing to change" {
  scripts | xargs -d '\n' shfmt -i 2 -ci -bn -d
}

@test "shellcheck and shfmt accept these tests" {
  cd "$REPO/tests/shell"
  # Stubs expand their own text, and every test is a subshell.
  shellcheck -e SC2016,SC2030,SC2031 ./*.bats ./*.bash
  shfmt -i 2 -ci -bn -ln bats -d .
}

# variables <library>: those that reading it leaves behind, besides the shell's own upkeep
variables() {
  bash -c 'known=$(compgen -v); source "$1"; comm -13 <(echo "$known" | sort) <(compgen -v | sort)' _ "$1" \
    | grep -vxE 'known|_|PIPESTATUS|BASH_.*' || true
}

@test "libraries only define functions" {
  local found
  echo 'setting=1' >library.sh
  [[ $(variables library.sh) == setting ]]
  for library in "tasks/$MODEL"/lib/*.sh; do
    found=$(variables "$library")
    [[ $found == '' ]]
  done
}

@test "every script runs under strict mode" {
  for script in "tasks/$MODEL"/*.sh tasks/finetune.sh; do
    grep -Fxq 'set -euo pipefail' "$script"
    grep -Fxq 'shopt -s inherit_errexit' "$script"
  done
}

@test "every script of a task has a wrapper of two lines in the alias folder" {
  diff <(cd "tasks/$MODEL" && ls ./*.sh) <(cd tasks/qwen2.5vl && ls ./*.sh)
  for wrapper in tasks/qwen2.5vl/*.sh; do
    [[ $(wc -l <"$wrapper") -eq 2 && ! -L $wrapper ]]
  done
}

@test "rendered files hold no blank-line scars, tabs, trailing blanks or machine paths" {
  run ! grep -rnP '\t| $|\r|/root/|/home/' "tasks/$MODEL" --include '*.sh' --include '*.example' --include '*.md'
  for script in $(scripts); do
    cat -s "$script" | cmp - "$script"
  done
}

@test "a launcher is short and so are its libraries" {
  # The settings and arguments are data; main and its helpers are the code.
  [[ $(sed -n '/^# check_start/,$p' "tasks/$MODEL/finetune_qwen2_5_vl.sh" | wc -l) -le 75 ]]
  for library in "tasks/$MODEL"/lib/*.sh; do
    [[ $(wc -l <"$library") -le 200 ]]
  done
}
