source "$(dirname "$0")/../lib.sh"

# How many more fit, where, and why not one more. No cluster is asked.
unset KUBECONFIG
ask() { "$PLIMSOLL" capacity -o json -f "pod-$1.yaml" --from input.yaml; }
before=$(cksum input.yaml)
# fits POD NUMBER NODES
fits() {
  local said
  said=$(ask "$1")
  same "$2 $3" "$(jq -r '"\(.pods) \(.nodes | to_entries | map("\(.key)=\(.value)") | join(" "))"' <<<"$said")"
  same 6 "$(jq '.limitedBy.reasons | add' <<<"$said")"
  has "$(jq -r .limitedBy.message <<<"$said")" "0/6 nodes are available: "
  is "$said" ask "$1"
}
fits plain 18 "cap-a=8 cap-d=6 cap-e=1 cap-f=3"
fits spread 4 "cap-a=1 cap-d=1 cap-e=1 cap-f=1"
fits honor 7 "cap-a=2 cap-d=2 cap-e=1 cap-f=2"
fits anti 4 "cap-a=1 cap-d=1 cap-e=1 cap-f=1"
is "$before" cksum input.yaml
