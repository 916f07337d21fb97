# Sourced by `run` and `containerd`: Go tests of which a failed one runs again alone, once, as in `cargo xtask test`, and
# steps that need the network.
passed=0
failed=0
flaky=()

# fetch LOG COMMAND...: runs what downloads something, three times at most: a network may be away for a moment. One that
# does not answer at all is not asked again.
fetch() {
  local log=$1 try begun=$SECONDS
  shift
  for try in 1 2 3; do
    if timeout 900 "$@" > "$log" 2>&1 < /dev/null; then return 0; fi
    [ $try -lt 3 ] && [ $((SECONDS - begun)) -lt 120 ] || return 1
    sleep 5
  done
}

# whole_package LOG PACKAGE [ARGUMENT...]: runs all tests once, with `before` passed ones of earlier packages.
whole_package() {
  local log=$1 package=$2 ok=0
  shift 2
  go test -v -count=1 -timeout 20m "$@" "$package" > "$log" 2>&1 || ok=$?
  passed=$((before + $(grep -c '^--- PASS: ' "$log" || true)))
  if [ $ok -eq 0 ]; then
    tail -n 1 "$log"
  else
    grep -vE '^(=== |--- PASS| +--- PASS)' "$log" || true
  fi
  return $ok
}

# go_test LOG PACKAGE [ARGUMENT...]: runs the tests of a package; adds to `passed`, `failed` and `flaky`.
go_test() {
  local log=$1 package=$2 before=$passed name names
  if whole_package "$@"; then return; fi
  mapfile -t names < <(sed -n 's/^--- FAIL: \([^ /]*\) .*/\1/p' "$log")
  if [ ${#names[@]} -eq 0 ] || grep -qE '^(panic|fatal error): ' "$log"; then
    # What is set up for all tests failed, or the process ended before it came to the others.
    printf -- '-- %s: once more: %s\n' "$(date +%T)" "$package"
    if whole_package "$@"; then
      flaky+=("$package: ${names[*]:-its set-up}")
    else
      failed=$((failed + 1))
    fi
    return
  fi
  for name in "${names[@]}"; do
    printf -- '-- %s: once more, alone: %s\n' "$(date +%T)" "$name"
    if go test -count=1 -timeout 20m -run "^$name\$" "$package"; then
      flaky+=("$name") passed=$((passed + 1))
    else
      failed=$((failed + 1))
    fi
  done
}

# summary WHAT: names flaky tests, and writes the lines for `.ci/run` into the file that $ALLOT_SUMMARY names. Go's tests at the
# top count, not their parts.
summary() {
  local line
  for line in "${flaky[@]}"; do echo "$1: FLAKY $line"; done
  [ -n "${ALLOT_SUMMARY:-}" ] || return 0
  {
    for line in "${skipped[@]}"; do echo "SKIPPED $1: $line"; done
    for line in "${flaky[@]}"; do echo "FLAKY $1: $line"; done
    echo "$passed passed, $failed failed, ${#skipped[@]} skipped"
  } > "$ALLOT_SUMMARY"
}
