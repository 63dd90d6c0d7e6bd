r"""The shell text of actions. `gitops.hosts.actions` combines it with the variables of an item.

An action takes the lock of the host shared, checks that its run still owns the host, writes an intent, acts, and stores the
result in the intent before it answers. If the connection is lost, the same script is sent again: a stored result is the
answer, a running script is waited for, and an intent without a result means that the action has to be done again.

| on the host | what it is |
|---|---|
| `owner.json` | the repository and the cluster that the host belongs to |
| `fence` | the run that owns the host: the sequence number of its ledger entry and a random id |
| `lock` | held shared by each action, and exclusively by the step that takes the host over |
| `key`, `key.inner`, `key.outer` | 32 random bytes, and its pads for keyed digests |
| `intents/ID/` | `intent`, `result`, and the output of programs |
| `services/UNIT` | the marker of a service: the keyed digest of the files that it was started with |
| `backups/SHA256` | former contents, at most 64 MiB |
| `earlier/`, `restore` | what a guarded change replaced, and the script that brings it back unless the change is confirmed |

A change that could lock this program out is guarded: a timer on the host takes it back, unless it is confirmed over a new
connection. Without systemd nothing is guarded.

A call of `point` does nothing. Tests replace it to kill the script there.
"""

COMMON = r"""
trap '' PIPE HUP
point() { :; }
fail_now() { section refused; printf '%s\n%s' "$1" "$2"; section end; exit 0; }
as() {
    if [ -n "$actor" ]; then
        setpriv --reuid="$actor" --regid="$(id -g -- "$actor")" --init-groups --inh-caps=-all -- "$@"
    else
        "$@"
    fi
}
"""
"""What all scripts that change a host have. Needs `FIND_STATE` before it."""

MARKER = r"""
keyed() {
    { cat "$state/key.outer"; cat "$state/key.inner" - | sha256sum | head -c 64; } | sha256sum | head -c 64
}
marker_of() {
    files=$(systemctl show --property=FragmentPath,DropInPaths,EnvironmentFiles -- "$1" |
        sed -e 's/^[A-Za-z]*=//' -e 's/ (ignore_errors=[a-z]*)$//' | tr ' ' '\n' | grep '^/')
    more=$(printf '%s\n' "$files" | tr '\n' '\0' | xargs -0 -r grep -h -s -E '^LoadCredential(Encrypted)?=' -- |
        sed 's/^[^:]*://' | grep '^/')
    printf '%s\n' "$files" "$more" "$2" | sort -u | grep . | while IFS= read -r each; do
        printf '%s\n' "$each"
        cat -- "$each" 2>/dev/null
    done | keyed
}
"""
"""`keyed` prints the keyed digest of its input, and `marker_of` that of the files that a service is started with.

These are its unit, and the files that are named there or in the second argument, one in each line.
"""

BEGIN = r"""
[ -s "$state/fence" ] || fail_now host_fenced 'no run has taken over the host'
exec 9>>"$state/lock"
flock -s -w "$patience" 9 || fail_now host_busy 'another run is taking over the host'
[ "$(cat "$state/fence")" = "$fence" ] || fail_now host_fenced "the host belongs to run $(cat "$state/fence")"
intent_folder=$state/intents/$intent
again=
[ ! -e "$intent_folder/intent" ] || again=yes
mkdir -p "$intent_folder"
exec 8>>"$intent_folder/lock"
flock -w "$patience" 8 || fail_now host_busy 'the same action is still running'
answer() { section result; cat "$intent_folder/result"; section end; exit 0; }
[ ! -e "$intent_folder/result" ] || answer
output=$intent_folder/output
actor='' temp=${temp-}
keep() { sync -- "$1.new" && mv -T -f -- "$1.new" "$1" && sync -- "${1%/*}"; }
begin() {
    point before_intent
    printf '%s\n%s' "$actor" "$temp" > "$intent_folder/temp"
    printf '%s\n' "$purpose" > "$intent_folder/intent.new"
    keep "$intent_folder/intent"
    point after_intent
}
finish() {
    printf '%s\n%s\n%s' "$1" "$2" "$3" > "$intent_folder/result.new"
    point before_result
    keep "$intent_folder/result"
    point after_result
    answer
}
done_with() { finish 'done' "$1" "$2"; }
fail() { finish failed "$1" "$2"; }
attempt() {
    "$@" >"$output" 2>&1 </dev/null 8>&- 9>&- || fail host_action_failed "${1##*/}: exit $?: $(tail -c 2000 "$output")"
}
remember() {
    if [ -z "$confirm" ] || [ ! -d /run/systemd/system ]; then return 0; fi
    slot=$state/earlier/$(printf %s "$1" | sha256sum | head -c 64)
    [ ! -e "$slot/path" ] || return 0
    rm -rf -- "$slot"
    mkdir -p "$slot"
    if [ -e "$1" ] || [ -L "$1" ]; then cp -a -- "$1" "$slot/item" || fail host_action_failed "no copy of $1"; fi
    printf %s "$1" > "$slot/path.new"
    keep "$slot/path"
}
guard() {
    if [ -z "$confirm" ] || [ ! -d /run/systemd/system ]; then return 0; fi
    printf %s "$restore" > "$state/restore.new"
    keep "$state/restore"
    systemd-run --quiet --collect --unit="gitops-confirm-$intent" --on-active="$confirm" --timer-property=AccuracySec=100ms \
        -- /bin/sh "$state/restore" "$state" "$1" "$intent" >"$output" 2>&1 </dev/null 8>&- 9>&- ||
        fail host_action_failed "systemd-run: $(tail -c 2000 "$output")"
    point after_guard
}
detached() {
    if [ -d /run/systemd/system ]; then
        systemd-run --quiet --wait --pipe --collect --service-type=exec --unit="gitops-$intent" \
            --setenv=DEBIAN_FRONTEND=noninteractive --setenv=LC_ALL=C --setenv="PATH=$PATH" -- "$@"
    else
        DEBIAN_FRONTEND=noninteractive "$@"
    fi
}
"""
"""The beginning of every action: the lock, the fence, the intent, and functions. Needs `COMMON` before it."""

PATHS = r"""
unsafe() { fail_now host_path_unsafe "$1"; }
inspect() {
    found=$(stat -c '%u %g %a %F' -- "$1" 2>/dev/null) || fail_now host_parent_missing "$1"
    its_uid=${found%% *} found=${found#* }
    its_gid=${found%% *} found=${found#* }
    its_mode=0${found%% *}
    [ "${found#* }" = directory ] || fail_now host_parent_missing "$1"
    open=$((its_mode & 02))
    [ "$its_gid" = 0 ] || open=$((its_mode & 022))
    if [ "$open" = 0 ] && { [ "$its_uid" = 0 ] || [ "$its_uid" = "$me" ] || [ "$its_uid" = "$actor" ]; }; then return; fi
    if [ -n "$actor" ] || [ "$open" != 0 ]; then unsafe "$1 can be changed by others"; fi
    actor=$its_uid
    [ "$me" = 0 ] || unsafe "$1 belongs to uid $its_uid"
    id -g -- "$actor" >/dev/null 2>&1 || unsafe "$1 belongs to uid $its_uid, which is not a user"
    [ -z "$owner" ] || [ "$(id -u -- "$owner" 2>/dev/null)" = "$actor" ] ||
        unsafe "$1 belongs to uid $its_uid, but the item to $owner"
}
check_parents() {
    folder='' rest=$1 hops=0 me=$(id -u)
    while :; do
        inspect "${folder:-/}"
        rest=${rest#/}
        case $rest in */*) ;; *) break ;; esac
        next=$folder/${rest%%/*} rest=/${rest#*/}
        if [ -L "$next" ]; then
            hops=$((hops + 1))
            if [ -n "$actor" ] || [ "$(stat -c %u -- "$next")" != 0 ] || [ "$hops" -gt 40 ]; then
                unsafe "$next is a symbolic link that others can change"
            fi
            link=$(readlink -- "$next")
            case $link in /*) folder='' rest=$link$rest ;; *) rest=/$link$rest ;; esac
        else
            folder=$next
        fi
    done
}
fact() {
    head=$(as find "$1" -maxdepth 0 -printf '%y %m %U %G ' 2>/dev/null) || { printf absent; return; }
    case $head in
        l*) link=$(as find "$1" -maxdepth 0 -printf '%l.'); printf '%s%s' "$head" "${link%.}" ;;
        f*)
            printf '%s' "$head"
            [ "$(as find "$1" -maxdepth 0 -size -4097k)" = "$1" ] || return 0
            if [ -n "$secret" ]; then as cat -- "$1" | keyed; else as cat -- "$1" | sha256sum | head -c 64; fi
            ;;
        *) printf '%s' "$head" ;;
    esac
}
expect() {
    [ -z "$again" ] || return 0
    now=$(fact "$path"; printf .)
    now=${now%.}
    [ "$now" != "$before" ] || return 0
    # An empty content in `before` means that it is not known.
    if [ "${before% }" != "$before" ] && [ "${now#"$before"}" != "$now" ]; then return 0; fi
    fail_now host_changed_meanwhile "planned for $before, found $now"
}
back_up() {
    if [ ! -f "$path" ] || [ -L "$path" ]; then return 0; fi
    mkdir -p "$state/backups"
    as cat -- "$path" > "$state/backups/new" || fail host_action_failed "no backup of $path"
    sum=$(sha256sum < "$state/backups/new" | head -c 64)
    [ "$(stat -c %s -- "$state/backups/new")" -gt 67108864 ] || mv -T -f -- "$state/backups/new" "$state/backups/$sum"
    rm -f -- "$state/backups/new"
    total=0
    for each in $(ls -t -- "$state/backups"); do
        total=$((total + $(stat -c %s -- "$state/backups/$each")))
        [ "$total" -le 67108864 ] || rm -f -- "$state/backups/$each"
    done
}
clear_leftovers() { as rm -rf --one-file-system -- "$temp" "$temp.old" || fail host_action_failed "cannot remove $temp"; }
give_up() { as rm -rf --one-file-system -- "$temp"; fail "$1" "$2"; }
own() {
    as chown -h -- "$owner:$group" "$temp" >"$output" 2>&1 || give_up host_action_failed "$(tail -c 2000 "$output")"
    as chmod -- "$mode" "$temp" >"$output" 2>&1 || give_up host_action_failed "$(tail -c 2000 "$output")"
}
put() {
    as sync -- "$temp" 2>/dev/null
    remember "$path"
    guard ''
    point before_rename
    if [ -d "$path" ] && [ ! -L "$path" ]; then
        as mv -T -- "$path" "$temp.old" 2>"$output" || give_up_moving
        point between_renames
    fi
    as mv -T -f -- "$temp" "$path" 2>"$output" || give_up_moving
    point after_rename
    as sync -- "$parent"
    as rm -rf --one-file-system -- "$temp.old"
}
give_up_moving() {
    case $(cat "$output") in
        *busy*) give_up host_path_mounted "$path is a mount point" ;;
        *) give_up host_action_failed "$(tail -c 2000 "$output")" ;;
    esac
}
parent=${path%/*}
parent=${parent:-/}
"""
"""Functions for items at a path: who acts there, what it has, and how something new gets there at once."""

FILE = r"""
[ -z "$drop_in" ] || [ -d "$parent" ] || { mkdir -m 755 -- "$parent" && sync -- "${parent%/*}"; }
check_parents "$path"
expect
begin
clear_leftovers
point before_temp
if [ -n "$create_only" ] && [ -f "$path" ]; then
    as cp -- "$path" "$temp" 2>"$output" || give_up host_action_failed "$(tail -c 2000 "$output")"
else
    head -c "$size" | as sh -c 'umask 077; set -C; cat > "$1"' sh "$temp" 2>"$output" ||
        give_up host_action_failed "$(tail -c 2000 "$output")"
    [ "$(as cat -- "$temp" | sha256sum | head -c 64)" = "$sha256" ] || give_up host_action_failed 'the content did not arrive'
fi
own
point after_temp
if [ -n "$check" ]; then
    as timeout -k 5 "$timeout" sh -c "$check" >"$output" 2>&1 </dev/null 8>&- 9>&- ||
        give_up host_check_failed "exit $?: $(tail -c 2000 "$output")"
fi
if [ -n "$unit" ] && [ -d /run/systemd/system ]; then
    mkdir -p "$intent_folder/units"
    as cat -- "$temp" > "$intent_folder/units/$unit"
    if ! SYSTEMD_UNIT_PATH="$intent_folder/units:" systemd-analyze verify --man=no --recursive-errors=no \
        "$intent_folder/units/$unit" >"$output" 2>&1 </dev/null; then
        # Programs and units of the same plan may come later, and what is ignored never refuses a unit.
        wrong=$(grep -F -e "/$unit:" -e "$unit: " "$output" |
            grep -v -e 'is not executable' -e 'Unit .* not found' -e 'ignoring' -e 'not safe' | tail -c 2000)
        rm -rf -- "$intent_folder/units"
        [ -z "$wrong" ] || give_up host_check_failed "$wrong"
    fi
    rm -rf -- "$intent_folder/units"
fi
back_up
put
done_with '' ''
"""

SYMLINK = r"""
check_parents "$path"
expect
begin
clear_leftovers
as ln -s -- "$to" "$temp" 2>"$output" || give_up host_action_failed "$(tail -c 2000 "$output")"
point after_temp
back_up
put
done_with '' ''
"""

DIRECTORY = r"""
check_parents "$path"
expect
begin
clear_leftovers
if [ -d "$path" ] && [ ! -L "$path" ]; then
    as chown -h -- "$owner:$group" "$path" >"$output" 2>&1 || fail host_action_failed "$(tail -c 2000 "$output")"
    point after_owner
    as chmod -- "$mode" "$path" >"$output" 2>&1 || fail host_action_failed "$(tail -c 2000 "$output")"
else
    as mkdir -- "$temp" 2>"$output" || give_up host_action_failed "$(tail -c 2000 "$output")"
    own
    point after_temp
    back_up
    put
fi
done_with '' ''
"""

REMOVE = r"""
check_parents "$path"
expect
begin
clear_leftovers
back_up
remember "$path"
guard ''
point before_removal
case $on_remove in
    empty)
        as rmdir -- "$path" 2>"$output" || [ ! -d "$path" ] ||
            done_with host_directory_not_empty "$(as find "$path" -mindepth 1 -maxdepth 1 -printf . | wc -c) entries"
        ;;
    tree)
        if awk -v "below=$path/" 'index($5, below) == 1 { found = 1 } END { exit !found }' /proc/self/mountinfo; then
            as rm -rf --one-file-system -- "$path" 2>"$output"
            [ ! -d "$path" ] || done_with host_directory_not_empty 'it has mount points'
        elif [ -e "$path" ]; then
            as mv -T -- "$path" "$temp.old" 2>"$output" || give_up_moving
            as sync -- "$parent"
            point after_rename
            as rm -rf --one-file-system -- "$temp.old"
        fi
        ;;
    *) as rm -f -- "$path" 2>"$output" || give_up_moving ;;
esac
as sync -- "$parent"
point after_removal
done_with '' ''
"""

GROUP = r"""
begin
if [ -n "$remove" ]; then
    if getent group "$name" >/dev/null; then attempt groupdel -- "$name"; fi
elif entry=$(getent group "$name"); then
    entry=${entry#*:*:}
    [ -z "$gid" ] || [ "${entry%%:*}" = "$gid" ] || attempt groupmod -g "$gid" -- "$name"
else
    eval "attempt $create"
fi
point after_account
done_with '' ''
"""

USER = r"""
begin
if [ -n "$remove" ]; then
    if getent passwd "$name" >/dev/null; then
        userdel -- "$name" >"$output" 2>&1 </dev/null 8>&- 9>&-
        case $? in
            0) ;;
            8) fail host_user_busy "$(tail -c 2000 "$output")" ;;
            *) fail host_action_failed "userdel: $(tail -c 2000 "$output")" ;;
        esac
    fi
elif getent passwd "$name" >/dev/null; then
    eval "attempt $modify"
elif [ -z "$named_group" ] && getent group "$name" >/dev/null; then
    eval "attempt $create -g $name -- $name"
else
    eval "attempt $create ${named_group:--U} -- $name"
fi
point after_account
done_with '' ''
"""

PACKAGES = r"""
apt() {
    detached apt-get -y -q --no-install-recommends --allow-change-held-packages -o Dpkg::Options::=--force-confdef \
        -o Dpkg::Options::=--force-confold -o DPkg::Lock::Timeout=120 "$@" >"$output" 2>&1 </dev/null 8>&- 9>&-
}
own_packages() {
    for each in "$state"/intents/*/intent; do
        if grep -q '"kind":"packages"' "$each" 2>/dev/null && ! grep -q '^done' "${each%/intent}/result" 2>/dev/null; then
            return 0
        fi
    done
    return 1
}
if [ -n "$(dpkg --audit)" ]; then
    own_packages || fail_now host_packages_broken "dpkg --audit names $(dpkg --audit | awk '/^ / { print $1 }' | tr '\n' ' ')"
    begin
    detached dpkg --force-confdef --force-confold --configure -a >"$output" 2>&1 </dev/null 8>&- 9>&- ||
        fail host_packages_broken "dpkg --configure -a: $(tail -c 2000 "$output")"
fi
begin
refresh() {
    apt update || fail host_action_failed "apt-get update: $(tail -c 2000 "$output")"
    touch "$state/apt-updated"
}
simulate() { eval "apt-get -s -q --no-install-recommends --allow-change-held-packages $call" >"$output" 2>&1 </dev/null; }
if [ -n "$refresh" ] || [ ! -e "$state/apt-updated" ] ||
    [ -n "$(find /etc/apt -newer "$state/apt-updated" -print -quit)" ]; then refresh; fi
simulate || { refresh; simulate; } || fail host_action_failed "apt-get: $(tail -c 2000 "$output")"
others=$(awk -v "expected=$removed" '/^(Remv|Purg) / && index(expected, " " $2 " ") == 0 { print $2 }' "$output" |
    sort -u | tr '\n' ' ')
[ -z "$others" ] || fail host_package_would_remove "$others"
point before_packages
eval "apt $call" || fail host_action_failed "apt-get: $(tail -c 2000 "$output")"
point after_packages
for each in "$state"/intents/*/intent; do
    if [ "$each" != "$intent_folder/intent" ] && grep -q '"kind":"packages"' "$each"; then rm -rf -- "${each%/intent}"; fi
done
for each in $hold; do apt-mark hold "$each" >/dev/null; done
for each in $unhold; do apt-mark unhold "$each" >/dev/null; done
done_with '' ''
"""

RELOAD = r"""
begin
point before_reload
attempt systemctl daemon-reload
point after_reload
done_with '' ''
"""

SERVICE = r"""
property() { systemctl show --value --property="$1" -- "$unit"; }
is_mere() { case $unit in *.timer | *.socket | *.path | *.mount | *.target | *.slice) return 0 ;; *) return 1 ;; esac; }
is_oneshot() { [ "$(property Type)" = oneshot ] && [ "$(property RemainAfterExit)" = no ]; }
wait_for_start() {
    stable=0 deadline=$(($(date +%s) + timeout))
    while :; do
        active=$(property ActiveState)
        if is_mere; then [ "$active" != active ] || return 0; fi
        if is_oneshot; then
            [ "$active" != inactive ] || [ "$(property Result)" != success ] || return 0
        elif [ "$active" = active ]; then
            current=$(property InvocationID)
            [ "$current" = "${invocation:-$current}" ] || stable=0
            invocation=$current
            [ "$stable" -lt "$settle" ] || return 0
            stable=$((stable + 1))
        else
            stable=0
        fi
        if [ "$active" = failed ] || [ "$(date +%s)" -ge "$deadline" ]; then return 1; fi
        sleep 0.1
    done
}
change() {
    systemctl "$@" >"$output" 2>&1 </dev/null 8>&- 9>&- && return 0
    fail host_unit_failed "systemctl $1: $(tail -c 500 "$output"); result $(property Result)"
}
begin
# An interrupted run may not have come to it.
[ "$(property NeedDaemonReload)" != yes ] || change daemon-reload
if [ -n "$remove" ]; then
    if [ "$(property LoadState)" != not-found ]; then
        change stop "$unit"
        point after_stop
        systemctl disable "$unit" >"$output" 2>&1
    fi
    rm -f -- "$state/services/$unit"
    done_with '' ''
fi
case $enabled in
    masked) change mask "$unit" ;;
    true | false)
        [ "$(property UnitFileState)" != masked ] || change unmask "$unit"
        case $(property UnitFileState) in
            static | indirect | generated | alias | transient) ;;
            *) if [ "$enabled" = true ]; then change enable "$unit"; else change disable "$unit"; fi ;;
        esac
        ;;
esac
point after_enable
mkdir -p "$state/services"
marker=$(marker_of "$unit" "$triggers")
known=$(cat "$state/services/$unit" 2>/dev/null)
invocation=''
active=$(property ActiveState)
case $desired in
    running)
        how=''
        if [ "$active" != active ] && ! { is_oneshot && [ "$(property Result)" = success ] && [ -n "$known" ]; }; then
            how=start
        fi
        if [ -n "$how" ] || [ "$known" = "$marker" ] || [ "$on_change" = none ]; then :
        elif [ -n "$known$again$changed" ]; then how=$on_change; fi
        [ -z "$how" ] || guard "$unit"
        case $how in
            start | restart)
                systemctl reset-failed "$unit" 2>/dev/null
                point before_start
                change "$how" "$unit"
                ;;
            reload) change reload-or-restart "$unit" ;;
        esac
        point after_start
        if [ -n "$how" ] && ! wait_for_start; then
            fail host_unit_failed "$unit is $(property ActiveState): $(property Result)"
        fi
        ;;
    stopped) [ "$active" = inactive ] || change stop "$unit" ;;
esac
point before_marker
printf '%s' "$marker" > "$state/services/$unit.new"
keep "$state/services/$unit"
point after_marker
done_with '' ''
"""

READY = r"""
tcp() { timeout 5 bash -c 'exec 3<>"/dev/tcp/$1/$2"' bash "$1" "$2" 2>/dev/null; }
http() {
    timeout 5 bash -c '
        exec 3<>"/dev/tcp/$1/$2" || exit 1
        printf "GET %s HTTP/1.0\r\nHost: %s\r\nConnection: close\r\n\r\n" "$3" "$4" >&3
        head -c 1048576 <&3' bash "$1" "$2" "$3" "$4" >"$output" 2>/dev/null
    [ "$(head -n 1 "$output" | cut -d ' ' -f 2)" = "$5" ] && { [ -z "$6" ] || grep -q -F -e "$6" "$output"; }
}
begin
deadline=$(($(date +%s) + timeout))
passed=0
while [ "$passed" -lt "$passes" ]; do
    if why=$(eval "$checks"); then passed=$((passed + 1)); else passed=0; fi
    [ "$passed" -lt "$passes" ] || break
    [ "$(date +%s)" -lt "$deadline" ] || fail host_not_ready "$why"
    sleep "$interval"
done
done_with '' ''
"""

RESTORE = r"""
state=$1 unit=$2 intent=$3
for slot in "$state"/earlier/*/; do
    [ -e "$slot/path" ] || continue
    path=$(cat "$slot/path")
    if [ -e "$slot/item" ] || [ -L "$slot/item" ]; then
        rm -rf -- "$path.gitops-earlier"
        cp -a -- "$slot/item" "$path.gitops-earlier" && mv -T -f -- "$path.gitops-earlier" "$path"
    else
        rm -f -- "$path"
    fi
done
systemctl daemon-reload
[ -z "$unit" ] || systemctl restart "$unit"
mkdir -p "$state/reverted"
: > "$state/reverted/$intent"
sync
"""
"""What the timer of a guarded change runs unless it is confirmed: everything that this run has guarded is as before."""

CONFIRM = r"""
systemctl stop "gitops-confirm-$intent.timer" 2>/dev/null
while systemctl is-active --quiet "gitops-confirm-$intent.service"; do sleep 0.1; done
section result
if [ -e "$state/reverted/$intent" ]; then printf 'reverted'; else printf 'kept'; fi
section end
"""
"""Ends the timer of a guarded change, over a new connection, and says whether it was already taken back."""

FENCE = r"""
mkdir -p -m 700 "$state/intents" || fail_now host_action_failed "cannot create $state"
chmod 700 "${state%/*}" "$state"
exec 9>>"$state/lock"
flock -w "$patience" 9 || fail_now host_busy "an action of an earlier run still holds the lock of the host"
if [ -d /run/systemd/system ]; then
    left=$patience
    while running=$(systemctl list-units --plain --no-legend --state=active,activating,deactivating \
        'gitops-*.service' 'gitops-confirm-*.timer') &&
        [ -n "$running" ]; do
        [ "$left" -gt 0 ] || fail_now host_busy "still running: $(printf '%s' "$running" | cut -d ' ' -f 1 | tr '\n' ' ')"
        left=$((left - 1))
        sleep 1
    done
fi
if [ -s "$state/owner.json" ]; then
    [ "$(cat "$state/owner.json")" = "$owner" ] || fail_now host_owned_by_other "$state belongs to $(cat "$state/owner.json")"
else
    printf '%s' "$owner" > "$state/owner.json.new"
    sync -- "$state/owner.json.new"
    mv -T -f -- "$state/owner.json.new" "$state/owner.json"
fi
if [ ! -s "$state/key.outer" ]; then
    for each in key key.inner key.outer; do
        head -c "$(eval "printf %s \"\$size_${each#key.}\"")" > "$state/$each.new"
    done
    sync -- "$state/key.new" "$state/key.inner.new" "$state/key.outer.new"
    for each in key key.inner key.outer; do mv -T -f -- "$state/$each.new" "$state/$each"; done
fi
known=$(cat "$state/fence" 2>/dev/null)
known=${known%%:*}
[ "${known:-0}" -le "$sequence" ] || fail_now host_fenced "the host belongs to run $(cat "$state/fence")"
point before_fence
rm -rf -- "$state/earlier" "$state/reverted"
for each in "$state"/intents/*/; do
    each=${each%/}
    [ -d "$each" ] || continue
    if [ ! -e "$each/result" ] && [ -s "$each/temp" ]; then
        actor=$(head -n 1 "$each/temp")
        temp=$(tail -n +2 "$each/temp")
        [ -z "$temp" ] || as rm -rf --one-file-system -- "$temp" "$temp.old"
    fi
    case $(cat "$each/intent" 2>/dev/null) in
        # What dpkg left half-done is completed by the next call for packages, which needs to see that it is ours.
        *'"kind":"packages"'*) if grep -q '^done' "$each/result" 2>/dev/null; then rm -rf -- "$each"; fi ;;
        *) rm -rf -- "$each" ;;
    esac
done
printf '%s:%s' "$sequence" "$run" > "$state/fence.new"
sync -- "$state/fence.new"
mv -T -f -- "$state/fence.new" "$state/fence"
sync -- "$state"
point after_fence
section result
printf 'done\n\n'
section end
"""
