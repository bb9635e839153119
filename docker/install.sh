#!/usr/bin/env bash
# Install torch, torch_npu, MindSpeed and MindSpeed-MM, inside the build of an image.
#
# usage: bash install.sh GIVEN SOURCES VENV
#
#   GIVEN    folder whose wheels/ pip looks into first
#   SOURCES  folder with MindSpeed-MM and MindSpeed
#   VENV     virtual environment to make

set -euo pipefail
shopt -s inherit_errexit

# shellcheck source=../templates/lib/messages.sh
source "$(dirname -- "${BASH_SOURCE[0]}")/../templates/lib/messages.sh"

# pip_install <word>...
pip_install() {
  "$venv/bin/pip" install --no-cache-dir --disable-pip-version-check "${pip_options[@]}" "$@"
}

# torch_pin: torch_npu's wheel for x86_64 takes torch's CPU build, which says so in its version
torch_pin() {
  if [[ $(uname -m) == x86_64 ]]; then
    printf 'torch==%s+cpu' "$TORCH_VERSION"
  else
    printf 'torch==%s' "$TORCH_VERSION"
  fi
}

# write_constraints: whatever else is installed must not replace these
write_constraints() {
  {
    torch_pin
    printf '\n'
    if [[ $TRANSFORMERS_VERSION == *.* ]]; then
      printf 'transformers==%s\n' "$TRANSFORMERS_VERSION"
    fi
  } >"$venv/constraints.txt"
}

install_torch() {
  local pin
  pin=$(torch_pin)
  if ! pip_install "$pin"; then
    die 5 "$pin cannot be installed" "package index of this build" \
      "torch_npu $TORCH_NPU_VERSION works with that build of torch only" \
      "set PIP_EXTRA_INDEX_URL in front of build.sh to an index that has it, or put the wheel into DIR/wheels of --src DIR"
  fi
  # its wheel names torch again, in a form that pip would resolve anew
  pip_install --no-deps "torch-npu==$TORCH_NPU_VERSION"
}

# install_decord: for videos; no wheel exists for aarch64, where one may lie in wheels/
install_decord() {
  if [[ $(uname -m) == x86_64 ]] || compgen -G "$given/wheels/decord-*" >/dev/null; then
    pip_install "decord==$DECORD_VERSION"
  else
    note "note: no decord for $(uname -m) in wheels/: images and text train, videos do not"
  fi
}

# install_sources: editable, since MindSpeed-MM runs from its folder. Built with what is installed:
# an isolated build would fetch setuptools again, which a site without network cannot.
install_sources() {
  local name
  for name in MindSpeed MindSpeed-MM; do
    if [[ -f $sources/$name/requirements.txt ]]; then
      pip_install --requirement "$sources/$name/requirements.txt"
    fi
    pip_install --no-build-isolation --editable "$sources/$name"
  done
  if [[ -d $sources/transformers ]]; then
    pip_install --no-build-isolation "$sources/transformers"
    rm -rf -- "$sources/transformers"
  fi
}

main() {
  problem_codes=()
  given=$1 sources=$2 venv=$3
  # CANN's own Python packages lie in the system's Python
  python3 -m venv --system-site-packages "$venv"
  write_constraints
  pip_options=(--constraint "$venv/constraints.txt")
  if [[ -d $given/wheels ]]; then
    pip_options+=(--find-links "$given/wheels")
  fi
  # what source trees are built with; later versions drop pkg_resources, which older ones import
  pip_install 'setuptools>=68,<81' wheel
  install_torch
  install_decord
  install_sources
  chmod -R g+rwX -- "$sources"
}

main "$@"
