# shellcheck shell=bash
# The vendor's environment: CANN and ATB.

# source_vendor_script <file>: such scripts read unset variables and "$@", and let commands fail
source_vendor_script() {
  local vendor_script=$1
  set --
  set +eu
  # shellcheck disable=SC1090 # found at run time
  source "$vendor_script"
  set -eu
}

# source_first <file>...: the first that exists; its name goes to stderr
source_first() {
  local file
  for file; do
    if [[ -f $file ]]; then
      source_vendor_script "$file"
      note "environment: $file"
      return
    fi
  done
  return 1
}

# ascend_scripts <folder>...: set_env.sh in these folders of ASCEND_PREFIX and the usual prefixes
ascend_scripts() {
  local prefix folder
  for prefix in "$ASCEND_PREFIX" /usr/local/Ascend /usr/local/npu; do
    for folder; do
      printf '%s\n' "$prefix/$folder/set_env.sh"
    done
  done
}

# source_ascend_environment: CANN, then ATB, under ASCEND_PREFIX or one of the usual prefixes
source_ascend_environment() {
  local toolkits=() atbs=()
  mapfile -t toolkits < <(ascend_scripts cann ascend-toolkit)
  mapfile -t atbs < <(ascend_scripts nnal/atb)
  # errexit is off inside an `if` condition anyway, so the vendor's own failures cannot end us.
  if ! source_first "${toolkits[@]}"; then
    note "warning: no CANN set_env.sh under $ASCEND_PREFIX or the usual prefixes; the environment is used as it is"
  fi
  source_first "${atbs[@]}" || true
}

# check_atb: CANN without ATB would end in an obscure error of the first backward pass
check_atb() {
  local script cann=''
  while IFS= read -r script; do
    if [[ -f $script && $script == */nnal/* ]]; then
      return
    elif [[ -f $script ]]; then
      cann=$script
    fi
  done < <(ascend_scripts cann ascend-toolkit nnal/atb)
  if [[ -n $cann && -z ${ATB_HOME_PATH:-} ]]; then
    problem 5 "CANN is installed without ATB" "$ASCEND_PREFIX/nnal/atb/set_env.sh" \
      "train.fused_gradients adds gradients inside the matrix product, which takes ATB" \
      "install CANN's nnal package, or set train.fused_gradients: false in $TASK/profile.yaml and render"
  fi
}
