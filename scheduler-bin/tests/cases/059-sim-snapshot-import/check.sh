source "$(dirname "$0")/../lib.sh"

# What a cluster exported is read in any order, and what is missing keeps no pod out.
unset KUBECONFIG
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
report=$("$PLIMSOLL" simulate --from input.yaml --decisions "$folder/decisions" -o json 2>"$folder/warnings")
is "exported-4 bound snap-2;exported-2 bound snap-2;" jq -rj '"\(.pod) \(.decision) \(.node);"' "$folder/decisions"
same "2 2 0" "$(jq -r '.summary | "\(.nodes) \(.podsScheduled) \(.podsUnschedulable)"' <<<"$report")"
# Six of seven cpus: three of exported-1, which stays on snap-1, and three of those placed.
same 0.857 "$(jq '.summary.utilisation.cpu * 1000 | floor / 1000' <<<"$report")"
has "$(<"$folder/warnings")" "Pod shop/exported-3 is on node snap-gone, which is not in the input"
has "$(<"$folder/warnings")" "Pod shop/exported-4: its preemptionPolicy PreemptLowerPriority is not that of PriorityClass snap-never, Never"
same 2 "$(grep -c WARN "$folder/warnings")"
