#!/bin/sh
# Runs the daemon once over a copy of this example and shows what came of it. The copy lies in a
# temporary folder, whose name is printed; the checkout stays as it is.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
spool=$(mktemp -d "${TMPDIR:-/tmp}/windowflow-example.XXXXXX")
cp -R "$here/inbox" "$spool/inbox"
echo "building; this takes some minutes the first time" >&2
cargo build --manifest-path "$here/../Cargo.toml"
windowflow=${CARGO_TARGET_DIR:-$here/../target}/debug/windowflow

# 65 says that files were refused: here, two are meant to be
"$windowflow" run --once --spool "$spool" --config "$here/windowflow.toml" || [ $? -eq 65 ]
echo
"$windowflow" report --spool "$spool"
echo
"$windowflow" failed --spool "$spool"
echo
echo "The spool is $spool: look around, drop files into $spool/inbox, and run again:"
echo "  $windowflow run --once --spool $spool"
