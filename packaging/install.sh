#!/bin/sh
# Puts the files of packages below directories; both kinds of packages are made by it.
#
#   packaging/install.sh program CLIENT MAIN WHEELHOUSE   what users need, and the rest beside it
#   packaging/install.sh slurm-plugin DIRECTORY           the built submit filter
#   packaging/install.sh condor DIRECTORY WHEELHOUSE      the built ClassAd library
#
# Python libraries come from the wheels alone, without a network, into a private virtual environment.
# That sees the distribution's packages too: plug-ins of rtsched may be such.
#
# PYTHON: python3; UNITDIR: /usr/lib/systemd/system; ZSH_COMPLETIONS; PLUGINDIR: where Slurm's
# plug-ins are; HTCONDOR: the requirement for HTCondor's bindings, none if empty.
set -eu
what=$1
shift
top=$(cd "$(dirname "$0")/.." && pwd)
python=${PYTHON:-python3}
units=${UNITDIR:-/usr/lib/systemd/system}
home=/usr/lib/rtsched
venv=$home/venv
users=$(sed -n 's/^USERS = //p' "$top/packaging/files/rtsched" | tr -d '(),"')
cd "$top"

made() {
    mkdir -p "$1"
    (cd "$1" && pwd)
}

compiled() {
    "$python" -m compileall -q -s "$1" -p / --invalidation-mode unchecked-hash "$1$2"
}

environment() {
    "$python" -m venv --without-pip "$client$venv"
    pip="$python -m pip --isolated --python $client$venv/bin/python3 install --quiet --no-index"
    pip="$pip --root-user-action ignore"
    pip="$pip --find-links $wheels --no-compile --no-warn-script-location --no-cache-dir"
    # shellcheck disable=SC2046  # requirements are one word each
    $pip "$top" $(cd packaging && "$python" -m requirements "$top/pyproject.toml" client)
    find "$client$venv" ! -type d | sort >"$client.base"
    # shellcheck disable=SC2046  # requirements are one word each
    $pip $(cd packaging && "$python" -m requirements "$top/pyproject.toml" live report rest)
    find "$client$venv" ! -type d | sort >"$client.all"
    comm -13 "$client.base" "$client.all" | while read -r file; do
        target=$main${file#"$client"}
        mkdir -p "${target%/*}"
        mv "$file" "$target"
    done
    find "$client$venv" -type d -empty -delete
    rm "$client.base" "$client.all"

    # No path of the build may stay, neither in scripts nor in compiled files.
    rm -rf "$main$venv/bin" "$main$venv/share"
    find "$client$venv/bin" -type f -delete
    rm -f "$client$venv/.gitignore"
    rm -f "$client$venv"/lib/python3*/site-packages/rtsched-*.dist-info/direct_url.json
    sed -i -e "s|$client||g" -e '/^command/d' \
        -e 's/^include-system-site-packages = false/include-system-site-packages = true/' \
        "$client$venv/pyvenv.cfg"
    compiled "$client" "$venv/lib"
    compiled "$main" "$venv/lib"
}

completions() {
    for shell in bash zsh fish; do
        case $shell in
        bash) target=/usr/share/bash-completion/completions/rtsched ;;
        zsh) target=${ZSH_COMPLETIONS:-/usr/share/zsh/site-functions}/_rtsched ;;
        fish) target=/usr/share/fish/vendor_completions.d/rtsched.fish ;;
        esac
        install -d "$client${target%/*}"
        _RTSCHED_COMPLETE=${shell}_source "$client$venv/bin/python3" packaging/files/rtsched \
            >"$client$target"
    done
}

pages() { # those of the documentation that git does not keep
    libraries=$(echo "$main$venv"/lib/python3*/site-packages)
    RTSCHED_COMPILE=0 PYTHONPATH=$libraries "$client$venv/bin/python3" -B tools/docs/generate.py
}

case $what in
program)
    client=$(made "$1") main=$(made "$2") wheels=$3
    environment
    completions
    pages
    install -D -m 755 packaging/files/rtsched "$client/usr/bin/rtsched"
    install -d -m 755 "$client/etc/rtsched"
    for page in docs/man/*.1; do
        name=${page##*/rtsched-}
        case " $users " in
        *" ${name%.1} "*) target=$client ;;
        *) target=$main ;;
        esac
        install -D -m 644 -t "$target/usr/share/man/man1" "$page"
    done
    echo 'The command rtsched has all of its commands where this file is.' >all-commands
    install -D -m 644 all-commands "$main$home/all-commands"
    rm all-commands
    install -D -m 644 contrib/systemd/rtsched.sysusers "$main/usr/lib/sysusers.d/rtsched.conf"
    install -D -m 644 contrib/systemd/rtsched.tmpfiles "$main/usr/lib/tmpfiles.d/rtsched.conf"
    install -d "$main$units"
    for unit in rtsched rtsched-rest rtsched-notices; do
        sed 's|/opt/rtsched/bin/rtsched|/usr/bin/rtsched|' "contrib/systemd/$unit.service" \
            >"$main$units/$unit.service"
        chmod 644 "$main$units/$unit.service"
    done
    ;;
slurm-plugin)
    dest=$(made "$1")
    make -s -C contrib/slurm install DESTDIR="$dest" PLUGINDIR="$PLUGINDIR"
    install -D -m 644 packaging/files/rtsched-slurm.sysusers \
        "$dest/usr/lib/sysusers.d/rtsched-slurm.conf"
    ;;
condor)
    dest=$(made "$1") wheels=$2
    make -s -C contrib/condor install DESTDIR="$dest"
    install -D -m 644 -t "$dest/usr/share/rtsched/condor" contrib/condor/config/*.conf
    install -m 755 -t "$dest/usr/share/rtsched/condor" contrib/condor/config/slots.sh
    install -D -m 644 contrib/systemd/rtsched-condor.conf \
        "$dest$units/rtsched.service.d/condor.conf"
    install -D -m 644 -t "$dest/usr/share/rtsched/condor/tunnel" contrib/condor/tunnel/*.conf
    install -D -m 644 -t "$dest$units" contrib/systemd/rtsched-tunnel.service
    install -D -m 644 packaging/files/rtsched-condor.sysusers \
        "$dest/usr/lib/sysusers.d/rtsched-condor.conf"
    if [ -n "${HTCONDOR:-}" ]; then
        "$python" -m pip --isolated install --quiet --no-index --find-links "$wheels" --no-compile \
            --no-cache-dir --root-user-action ignore --target "$dest$home/htcondor" "$HTCONDOR"
        rm -rf "$dest$home/htcondor/bin"
        compiled "$dest" "$home/htcondor"
        release=$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
        packages=$venv/lib/python$release/site-packages
        install -d "$dest$packages"
        echo "$home/htcondor" >"$dest$packages/rtsched-condor.pth"
    fi
    ;;
esac
