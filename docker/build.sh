#!/usr/bin/env bash
# Build the image forager:<version> (or FORAGER_IMAGE), also where no registry can be reached: then the base image is
# made from Debian's packages (needs root and mmdebstrap), as Debian's own is.
set -euo pipefail
cd "$(dirname "$0")/.."

image=${FORAGER_IMAGE:-forager:$(sed -n 's/^version = "\(.*\)"$/\1/p' pyproject.toml)}
base=${BASE_IMAGE:-debian:bookworm-slim}
own_base=forager-base:bookworm

say() { printf '%s\n' "$*" >&2; }

bootstrap() {
    # From the mirror that this machine's own packages come from.
    local mirror
    mirror=$(apt-get indextargets --format '$(REPO_URI)' 'Identifier: Packages' 'Codename: bookworm' | head -n 1)
    test -n "$mirror" || { say "this machine's package sources do not have Debian 12 (bookworm)"; return 1; }
    say "No registry in reach: making the base image from Debian packages"
    mmdebstrap --quiet --variant=minbase \
        --dpkgopt='path-exclude=/usr/share/man/*' --dpkgopt='path-exclude=/usr/share/locale/*' \
        --dpkgopt='path-exclude=/usr/share/doc/*' --dpkgopt='path-include=/usr/share/doc/*/copyright' \
        bookworm - "$mirror" | docker import --change 'CMD ["bash"]' - "$own_base" >/dev/null
}

has_image() { docker image inspect "$1" >/dev/null 2>&1; }

if ! has_image "$base" && ! docker pull --quiet "$base" >/dev/null 2>&1; then
    base=$own_base
    has_image "$base" || bootstrap
fi

# What this machine trusts and where its pip finds wheels, the build has to know too.
for certificate in /usr/local/share/ca-certificates/*.crt; do
    test ! -f "$certificate" || cp "$certificate" docker/local/
done
for folder in ${PIP_FIND_LINKS:-}; do
    for wheel in "$folder"/torch-*+cpu-*_"$(uname -m)".whl; do
        test ! -f "$wheel" || ln -f "$wheel" docker/local/ 2>/dev/null || cp "$wheel" docker/local/
    done
done
arguments=(--build-arg "BASE_IMAGE=$base")
if compgen -G 'docker/local/torch-*.whl' >/dev/null; then
    arguments+=(--build-arg TORCH_INDEX=)
elif test -n "${TORCH_INDEX+set}"; then
    arguments+=(--build-arg "TORCH_INDEX=$TORCH_INDEX")
fi

test -z "${TORCH:-}" || arguments+=(--build-arg "TORCH=$TORCH")

say "The base image is $(docker image inspect --format '{{range .RepoDigests}}{{.}}{{else}}{{.Id}}{{end}}' "$base"): BASE_IMAGE pins it"
say "Building $image (some minutes the first time)"
docker build "${arguments[@]}" --file docker/Dockerfile --tag "$image" .
