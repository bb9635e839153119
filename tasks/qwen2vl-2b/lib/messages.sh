# shellcheck shell=bash
# Messages. Faults are collected in problem_codes, so that one start shows all of them.

# note <text>
note() {
  printf '%s\n' "$*" >&2
}

# problem <exit code> <what> <where> <why> <fix>: 2 usage or profile, 3 checkpoint, 4 dataset, 5 host
problem() {
  printf 'error: %s\n  where: %s\n  why:   %s\n  fix:   %s\n' "${@:2}" >&2
  problem_codes+=("$1")
}

# stop_on_problems: ends with the code of the first problem
stop_on_problems() {
  if ((${#problem_codes[@]} > 0)); then
    exit "${problem_codes[0]}"
  fi
}

# note_faults: what a dry run says about the faults it has shown
note_faults() {
  if ((${#problem_codes[@]} > 0)); then
    note "dry run: a real start here would stop at the ${#problem_codes[@]} faults above"
  fi
}

# die <exit code> <what> <where> <why> <fix>
die() {
  problem_codes=()
  problem "$@"
  stop_on_problems
}

# show_command <word>...: one line that a shell reads back as the same words
show_command() {
  local line
  printf -v line '%q ' "$@"
  printf '%s\n' "${line% }"
}
