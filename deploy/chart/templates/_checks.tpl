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
{{- $times := .Values.leaderElection }}
{{- if le (int $times.leaseDuration) (int $times.renewDeadline) }}
{{- fail (printf "leaderElection.leaseDuration is %d and renewDeadline is %d: the leader would still write when another replica takes the Lease; make leaseDuration longer" (int $times.leaseDuration) (int $times.renewDeadline)) }}
{{- end }}
{{- if lt (int $times.renewDeadline) (mul 2 (int $times.retryPeriod)) }}
{{- fail (printf "leaderElection.renewDeadline is %d and retryPeriod is %d: the leader would have one attempt to renew the Lease; make retryPeriod at most half of renewDeadline" (int $times.renewDeadline) (int $times.retryPeriod)) }}
{{- end }}
{{- if not (regexMatch "^[a-z]" (include "pilothouse.name" .)) }}
{{- fail (printf "the release is named %s: the name of a Service begins with a letter; set fullnameOverride" .Release.Name) }}
{{- end }}
{{- include "pilothouse.checkPods" . }}
{{- include "pilothouse.checkArtifacts" . }}
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

{{/* Names that a pod would have twice, or that it uses and does not have. */}}
{{- define "pilothouse.checkPods" -}}
{{- $options := include "pilothouse.options" . }}
{{- range .Values.host.extraArguments }}
{{- $option := regexFind "^--[a-z-]+" . }}
{{- if and $option (not (has $option (list "--plugin" "--config" "--limits" "--wasi" "--watch-namespaces"))) (regexMatch (printf "(?m)^- \"?%s(=|\"?$)" $option) $options) }}
{{- fail (printf "host.extraArguments has %s, which the chart gives to the host already, and the host refuses an option that it gets twice; leave it out, and set the value of the chart that it comes from" $option) }}
{{- end }}
{{- end }}
{{- $variables := dict "HOSTNAME" "the chart" }}
{{- if .Values.host.log }}{{ $_ := set $variables "PILOTHOUSE_LOG" "host.log" }}{{ end }}
{{- if .Values.plugins.pullSecret }}{{ $_ := set $variables "DOCKER_CONFIG" "plugins.pullSecret" }}{{ end }}
{{- if and .Values.webhooks.enabled .Values.leaderElection.shards }}{{ $_ := set $variables "POD_IP" "the chart" }}{{ end }}
{{- range .Values.host.extraEnv }}
{{- if hasKey $variables .name }}
{{- fail (printf "host.extraEnv has the variable %s, which %s sets already; remove one" .name (get $variables .name)) }}
{{- end }}
{{- if and .value .valueFrom }}
{{- fail (printf "host.extraEnv: the variable %s has a value and valueFrom; remove one" .name) }}
{{- end }}
{{- $_ := set $variables .name "another entry of host.extraEnv" }}
{{- end }}
{{- if and .Values.cache.volume .Values.cache.existingClaim }}
{{- fail "cache.volume and cache.existingClaim are both set: there is one cache; remove one" }}
{{- end }}
{{- $volumes := dict }}
{{- range list "cache" "plugins" "configuration" "docker" "client-ca" }}{{ $_ := set $volumes . "the chart" }}{{ end }}
{{- range .Values.extraVolumes }}
{{- if hasKey $volumes .name }}
{{- fail (printf "extraVolumes has the volume %s, which %s has already; give it another name" .name (get $volumes .name)) }}
{{- end }}
{{- $_ := set $volumes .name "another entry" }}
{{- end }}
{{- $paths := dict }}
{{- range list "/cache" "/plugins" "/configuration" "/docker" "/client-ca" }}{{ $_ := set $paths . "the chart" }}{{ end }}
{{- range .Values.extraVolumeMounts }}
{{- if not (hasKey $volumes .name) }}
{{- fail (printf "extraVolumeMounts names the volume %s, and extraVolumes has none of this name; add it" .name) }}
{{- end }}
{{- $path := trimSuffix "/" (toString .mountPath) }}
{{- if not (hasPrefix "/" $path) }}
{{- fail (printf "extraVolumeMounts: the mountPath of the volume %s is no absolute path; give one" .name) }}
{{- end }}
{{- if hasKey $paths $path }}
{{- fail (printf "extraVolumeMounts has the mountPath %s, which %s has already; give another one" $path (get $paths $path)) }}
{{- end }}
{{- $_ := set $paths $path "another entry" }}
{{- end }}
{{- range $value, $given := dict "commonLabels" .Values.commonLabels "podLabels" .Values.podLabels }}
{{- range $name, $_ := $given }}
{{- if or (has $name (list "app.kubernetes.io/name" "app.kubernetes.io/instance" "app.kubernetes.io/version" "app.kubernetes.io/managed-by" "app.kubernetes.io/component" "helm.sh/chart")) (hasPrefix "pilothouse.dev/" $name) }}
{{- fail (printf "%s has the label %s, which the chart or Pilothouse sets; leave it out" $value $name) }}
{{- end }}
{{- end }}
{{- end }}
{{- range $name, $_ := .Values.podAnnotations }}
{{- if has $name (list "kubectl.kubernetes.io/default-container" "checksum/registries" "checksum/plugins") }}
{{- fail (printf "podAnnotations has the annotation %s, which the chart sets; leave it out" $name) }}
{{- end }}
{{- end }}
{{- end -}}

{{/* What the host would refuse in its files about artifacts. */}}
{{- define "pilothouse.checkArtifacts" -}}
{{- $artifacts := .Values.artifacts }}
{{- range $name, $_ := $artifacts.files }}
{{- if or (has $name (list "trust.yaml" "registries.yaml")) (hasPrefix "plugin-" $name) (hasPrefix "limits-" $name) }}
{{- fail (printf "artifacts.files has the name %s, which the chart needs for a file of its own; give it another name" $name) }}
{{- end }}
{{- end }}
{{- $named := list }}
{{- range $artifacts.trust.repositories }}
{{- $rule := printf "artifacts.trust: the rule for %s" .match }}
{{- $isLogged := eq (.transparencyLog | default "ignored") "required" }}
{{- if and .unsigned (or .keys .keyless $isLogged) }}
{{- fail (printf "%s has unsigned: true beside keys, keyless or transparencyLog, which it would make meaningless; remove one of them" $rule) }}
{{- end }}
{{- if not (or .unsigned .keys .keyless) }}
{{- fail (printf "%s accepts nothing; give it keys, keyless, or unsigned: true" $rule) }}
{{- end }}
{{- if and $isLogged (not (and .keys .trustedRoot)) }}
{{- fail (printf "%s has transparencyLog: required, which needs keys, and a trustedRoot that names the log" $rule) }}
{{- end }}
{{- $root := .trustedRoot }}
{{- range .keyless }}
{{- if not (or .trustedRoot $root) }}
{{- fail (printf "%s has the keyless identity %s without a trustedRoot; give one to the identity or the rule" $rule .subject) }}
{{- end }}
{{- if contains "*" .issuer }}
{{- fail (printf "%s has the issuer %s, which has to be written in full, without *" $rule .issuer) }}
{{- end }}
{{- $named = append $named .trustedRoot }}
{{- end }}
{{- range .keys }}
{{- if eq (empty .file) (empty .pem) }}
{{- fail (printf "%s has a key that needs either file or pem; give one of them" $rule) }}
{{- end }}
{{- $named = append $named .file }}
{{- end }}
{{- $named = append $named $root }}
{{- end }}
{{- $hosts := dict }}
{{- range $artifacts.registries.registries }}
{{- if hasKey $hosts .host }}
{{- fail (printf "artifacts.registries lists the host %s twice; join the two entries" .host) }}
{{- end }}
{{- $_ := set $hosts .host true }}
{{- $named = concat $named (.certificateAuthorities | default list) }}
{{- end }}
{{- range compact $named }}
{{- if not (or (hasPrefix "/" .) (hasKey $artifacts.files .)) }}
{{- fail (printf "artifacts.trust or artifacts.registries names the file %s, and artifacts.files has none of this name; add it, or give an absolute path of extraVolumeMounts" .) }}
{{- end }}
{{- end }}
{{- end -}}
