{{/* Refuses values that contradict each other, with what to do. It renders nothing. */}}
{{- define "pilothouse.check" -}}
{{- if not .Values.image.repository }}
{{- fail "image.repository is empty: no image of the host is published yet; build one with `cargo xtask image` in a checkout of Pilothouse, push it to your registry or load it into the cluster, and set image.repository to its name" }}
{{- end }}
{{- if and (gt (int .Values.replicas) 1) (not .Values.leaderElection.enabled) }}
{{- fail "replicas is greater than 1 and leaderElection.enabled is false: both replicas would write; enable leader election, or set replicas to 1" }}
{{- end }}
{{- if and .Values.leaderElection.shards (not .Values.leaderElection.enabled) }}
{{- fail "leaderElection.shards is set and leaderElection.enabled is false: shards have Leases, too; enable leader election" }}
{{- end }}
{{- if and .Values.policies.reservedMetadata.enabled (not .Values.policies.reservedMetadata.resources) }}
{{- fail "policies.reservedMetadata.enabled is true and its resources are empty: the policy would concern nothing; list the resources that the plugins own, as `pilothouse inspect` prints them" }}
{{- end }}
{{- $ports := dict (toString (int .Values.metrics.port)) "metrics.port" }}
{{- range $value, $section := dict "api.port" .Values.api "webhooks.port" .Values.webhooks }}
{{- if $section.enabled }}
{{- $port := toString (int $section.port) }}
{{- if hasKey $ports $port }}
{{- fail (printf "%s and %s are both %s: a pod can listen on a port once; give one of them another port" (get $ports $port) $value $port) }}
{{- end }}
{{- $_ := set $ports $port $value }}
{{- end }}
{{- end }}
{{- if .Values.plugins.static }}
{{- include "pilothouse.checkStatic" . }}
{{- else if .Values.plugins.pullSecret }}
{{- fail "plugins.pullSecret is set and plugins.static is empty: Plugin resources name Secrets of their own; list these as artifacts.pullSecrets" }}
{{- end }}
{{- if and .Values.rbac.create (not .Values.rbac.clusterRole) }}
{{- include "pilothouse.checkWithoutClusterRole" . }}
{{- end }}
{{- if and .Values.webhooks.enabled .Values.networkPolicy.enabled .Values.webhooks.plugins (not .Values.networkPolicy.webhooksFrom) }}
{{- fail "webhooks.enabled is true and networkPolicy.webhooksFrom is empty: API servers show no certificate when they have objects converted, so only the NetworkPolicy keeps others from asking; list the addresses of the API servers, as in [{ipBlock: {cidr: 192.0.2.1/32}}] (`kubectl get endpointslices --namespace default --selector kubernetes.io/service-name=kubernetes` prints them; where the control plane reaches pods through a proxy or nodes, theirs), or set it to any" }}
{{- end }}
{{- end -}}

{{- define "pilothouse.checkStatic" -}}
{{- if .Values.plugins.selector }}
{{- fail "plugins.static and plugins.selector are both set: with plugins.static the host runs no Plugin resources, so there is nothing to select; remove one" }}
{{- end }}
{{- if eq .Values.crds.installedBy "host" }}
{{- fail "plugins.static is set and crds.installedBy is host: the host would install the CRD of Plugin alone, and runs no Plugin resources; set crds.installedBy to nobody, and have the CRDs of the plugins installed" }}
{{- end }}
{{- if .Values.artifacts.pullSecrets }}
{{- fail "plugins.static and artifacts.pullSecrets are both set: only Plugin resources name Secrets; give the credentials for static plugins as plugins.pullSecret" }}
{{- end }}
{{- $names := dict }}
{{- range .Values.plugins.static }}
{{- if hasKey $names .name }}
{{- fail (printf "plugins.static has two plugins of the name %s; give one another name" .name) }}
{{- end }}
{{- $_ := set $names .name true }}
{{- if eq (empty .file) (empty .artifact) }}
{{- fail (printf "plugins.static: the plugin %s needs either a file or an artifact; give one of them" .name) }}
{{- end }}
{{- if and .file (not $.Values.plugins.volume) }}
{{- fail (printf "plugins.static: the plugin %s has a file and plugins.volume is empty: give the volume that has the file, or an artifact" .name) }}
{{- end }}
{{- if and .rules (ne $.Values.host.identity "none") }}
{{- fail (printf "plugins.static: the plugin %s has rules, which are granted to the host's account, and host.identity is %s: set host.identity to none, or leave the rules out and apply what `pilothouse rights --host-account %s --identity %s` prints" .name $.Values.host.identity (include "pilothouse.account" $) $.Values.host.identity) }}
{{- end }}
{{- if and .rules (not $.Values.rbac.create) }}
{{- fail (printf "plugins.static: the plugin %s has rules and rbac.create is false, so nothing grants them; set rbac.create to true, or leave the rules out and grant them yourself" .name) }}
{{- end }}
{{- end }}
{{- end -}}

{{/* Each of these would need a right or an object of cluster scope. */}}
{{- define "pilothouse.checkWithoutClusterRole" -}}
{{- if not .Values.plugins.static }}
{{- fail "rbac.clusterRole is false and plugins.static is empty: Plugin resources are of cluster scope, and no Role grants them; list the plugins in plugins.static" }}
{{- end }}
{{- if not .Values.rbac.namespaces }}
{{- fail "rbac.clusterRole is false and rbac.namespaces is empty: the host would watch all namespaces, which no Role grants; list the namespaces" }}
{{- end }}
{{- if ne .Values.host.identity "none" }}
{{- fail (printf "rbac.clusterRole is false and host.identity is %s: the host would review what the accounts of plugins may do, which no Role grants; set host.identity to none" .Values.host.identity) }}
{{- end }}
{{- if .Values.api.enabled }}
{{- fail "rbac.clusterRole is false and api.enabled is true: the host would review tokens, which no Role grants; set api.enabled to false" }}
{{- end }}
{{- if .Values.webhooks.enabled }}
{{- fail "rbac.clusterRole is false and webhooks.enabled is true: webhook configurations are of cluster scope; set webhooks.enabled to false, and plugins default and validate before they reconcile" }}
{{- end }}
{{- if .Values.priorityClass.create }}
{{- fail "rbac.clusterRole is false and priorityClass.create is true: a PriorityClass is of cluster scope; name an existing one" }}
{{- end }}
{{- if .Values.policies.reservedMetadata.enabled }}
{{- fail "rbac.clusterRole is false and policies.reservedMetadata.enabled is true: the policy is of cluster scope; have somebody apply deploy/policy.yaml" }}
{{- end }}
{{- end -}}
