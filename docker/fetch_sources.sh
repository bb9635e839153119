#!/usr/bin/env bash
# Bring the sources of an image together, inside its build.
#
# usage: bash fetch_sources.sh GIVEN TARGET
#
#   GIVEN   folder of sources that need not be cloned (build.sh --src)
#   TARGET  gets MindSpeed-MM with Megatron's package in it, MindSpeed, and transformers where the
#           release takes a commit of it

set -euo pipefail
shopt -s inherit_errexit

# shellcheck source=../templates/lib/messages.sh
source "$(dirname -- "${BASH_SOURCE[0]}")/../templates/lib/messages.sh"

# need_git: CANN's images come without it
need_git() {
  if type -P git >/dev/null; then
    return
  elif type -P apt-get >/dev/null; then
    apt-get update -qq
    apt-get install -y -qq --no-install-recommends git ca-certificates
  else
    yum install -y -q git
  fi
}

# check_revision <folder> <revision>: a checkout must be at the revision; a plain folder cannot say
check_revision() {
  local folder=$1 revision=$2 head wanted
  if [[ ! -e $folder/.git ]]; then
    note "note: $folder holds no .git, so nothing shows that it is at $revision"
    return
  fi
  need_git
  head=$(git -C "$folder" rev-parse HEAD)
  wanted=$(git -C "$folder" rev-parse --verify --quiet "$revision^{commit}") || wanted=unknown
  if [[ $head != "$wanted" ]]; then
    die 5 "${folder##*/} is at ${head:0:8}, and the release takes $revision" "$folder" \
      "the release is tested with that revision" "git checkout $revision in that folder, or leave it out"
  fi
}

# take <name> <url> <revision>: the given folder, or a clone
take() {
  local name=$1 url=$2 revision=$3
  if [[ -d $given/$name ]]; then
    check_revision "$given/$name" "$revision"
    cp -R -- "$given/$name" "$target/$name"
  else
    need_git
    git clone --quiet -- "$url" "$target/$name"
    git -C "$target/$name" checkout --quiet "$revision"
  fi
  rm -rf -- "$target/$name/.git"
}

# add_megatron: MindSpeed-MM imports Megatron's package from its own folder
add_megatron() {
  take Megatron-LM "$MEGATRON_URL" "$MEGATRON_TAG"
  rm -rf -- "$target/MindSpeed-MM/megatron"
  mv -- "$target/Megatron-LM/megatron" "$target/MindSpeed-MM/megatron"
  rm -rf -- "$target/Megatron-LM"
}

main() {
  problem_codes=()
  given=$1 target=$2
  mkdir -p -- "$target"
  take MindSpeed-MM "$MINDSPEED_MM_URL" "$MINDSPEED_MM_COMMIT"
  add_megatron
  take MindSpeed "$MINDSPEED_URL" "$MINDSPEED_COMMIT"
  # a version has dots and comes from the package index, a commit has none
  if [[ $TRANSFORMERS_VERSION != *.* ]]; then
    take transformers "$TRANSFORMERS_URL" "$TRANSFORMERS_VERSION"
  fi
  # the group of the image's user may write logs and checkpoints here
  chmod -R g+rwX -- "$target"
}

main "$@"
