{{/* The name of all objects of the release. */}}
{{- define "pilothouse.name" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 48 | trimSuffix "-" -}}
{{- else -}}
{{- $name := .Values.nameOverride | default .Chart.Name -}}
{{- if contains $name .Release.Name -}}
{{- .Release.Name | trunc 48 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name $name | trunc 48 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* The name of objects of cluster scope: releases in other namespaces may have the same name. */}}
{{- define "pilothouse.clusterName" -}}
{{- printf "%s:%s" .Release.Namespace (include "pilothouse.name" .) -}}
{{- end -}}

{{- define "pilothouse.selector" -}}
app.kubernetes.io/name: pilothouse
app.kubernetes.io/instance: {{ include "pilothouse.name" . }}
{{- end -}}

{{- define "pilothouse.labels" -}}
{{ include "pilothouse.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- with .Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- define "pilothouse.account" -}}
{{- .Values.serviceAccount.name | default (include "pilothouse.name" .) -}}
{{- end -}}

{{/* The Secret with the webhooks' certificates. */}}
{{- define "pilothouse.secret" -}}
{{- include "pilothouse.name" . }}-webhooks
{{- end -}}

{{- define "pilothouse.image" -}}
{{- $tag := .Values.image.tag | default .Chart.AppVersion -}}
{{- if .Values.image.digest -}}
{{- printf "%s:%s@%s" .Values.image.repository $tag .Values.image.digest -}}
{{- else -}}
{{- printf "%s:%s" .Values.image.repository $tag -}}
{{- end -}}
{{- end -}}

{{/* Whether there is a ConfigMap: the word yes, once or more. */}}
{{- define "pilothouse.hasConfiguration" -}}
{{- if or .Values.artifacts.trust .Values.artifacts.registries .Values.artifacts.files -}}yes{{- end -}}
{{- range .Values.plugins.static -}}
{{- if or .configuration .limits -}}yes{{- end -}}
{{- end -}}
{{- end -}}

{{/* The name of a policy, of cluster scope: a DNS subdomain, which a release in another namespace does not have. */}}
{{- define "pilothouse.policy" -}}
{{- $context := index . 1 -}}
{{- printf "%s.%s.%s.pilothouse.dev" (index . 0) (include "pilothouse.name" $context) $context.Release.Namespace -}}
{{- end -}}

{{/* A label selector in the notation of kubectl as the requirements of matchExpressions. */}}
{{- define "pilothouse.requirements" -}}
{{- range regexFindAll "[^,(]+(\\([^)]*\\))?" . -1 }}
{{- $text := trim . }}
{{- if hasPrefix "!" $text }}
- key: {{ trimPrefix "!" $text | trim | quote }}
  operator: DoesNotExist
{{- else if hasSuffix ")" $text }}
- key: {{ regexFind "^\\S+" $text | quote }}
  operator: {{ ternary "NotIn" "In" (regexMatch "^\\S+\\s+notin" $text) }}
  values:
  {{- range splitList "," (regexReplaceAll "^[^(]*\\(|\\)$" $text "") }}
  - {{ trim . | quote }}
  {{- end }}
{{- else if contains "!=" $text }}
- key: {{ splitList "!=" $text | first | trim | quote }}
  operator: NotIn
  values: [{{ splitList "!=" $text | last | trim | quote }}]
{{- else if contains "=" $text }}
- key: {{ splitList "=" $text | first | trim | quote }}
  operator: In
  values: [{{ splitList "=" $text | last | trim | quote }}]
{{- else }}
- key: {{ $text | quote }}
  operator: Exists
{{- end }}
{{- end }}
{{- end -}}

{{/* The options of the host that follow from the values. */}}
{{- define "pilothouse.options" -}}
{{- range .Values.plugins.static }}
- {{ printf "--plugin=%s=%s" .name (.artifact | default (printf "/plugins/%s" .file)) | quote }}
{{- if .configuration }}
- --config={{ .name }}=/configuration/plugin-{{ .name }}.yaml
{{- end }}
{{- if .limits }}
- --limits={{ .name }}=/configuration/limits-{{ .name }}.yaml
{{- end }}
{{- if .wasi }}
- --wasi={{ .name }}={{ .wasi }}
{{- end }}
{{- else }}
- --plugin-dir=/plugins
{{- end }}
- --cache-dir=/cache/host
- --artifact-cache-size={{ int .Values.artifacts.cacheSize }}
- --identity={{ .Values.host.identity }}
- --workers={{ int .Values.host.workers }}
- --resync={{ int .Values.host.resync }}
- --grace={{ int .Values.host.grace }}
- --log-format={{ .Values.host.logFormat }}
- --metrics-address=:{{ int .Values.metrics.port }}
- --api-address={{ if .Values.api.enabled }}:{{ int .Values.api.port }}{{ else }}off{{ end }}
{{- if .Values.api.enabled }}
- --replica-service={{ include "pilothouse.name" . }}
- --replica-token=/replicas/token
{{- end }}
{{- if and .Values.api.enabled .Values.api.recording }}
- --allow-recording
{{- end }}
{{- with .Values.rbac.namespaces }}
- {{ printf "--watch-namespaces=%s" (join "," .) | quote }}
{{- end }}
{{- if .Values.leaderElection.enabled }}
- --leader-election
- --lease={{ include "pilothouse.name" . }}
- --lease-duration={{ int .Values.leaderElection.leaseDuration }}
- --lease-renew-deadline={{ int .Values.leaderElection.renewDeadline }}
- --lease-retry-period={{ int .Values.leaderElection.retryPeriod }}
{{- end }}
{{- if and .Values.leaderElection.enabled .Values.leaderElection.shards }}
- --shards={{ int .Values.leaderElection.shards }}
{{- end }}
{{- with .Values.plugins.selector }}
- {{ printf "--plugin-selector=%s" . | quote }}
{{- end }}
{{- if eq .Values.crds.installedBy "host" }}
- --install-crds=host
{{- end }}
{{- if .Values.artifacts.trust }}
- --trust=/configuration/trust.yaml
{{- end }}
{{- if .Values.artifacts.registries }}
- --registries=/configuration/registries.yaml
{{- end }}
{{- if .Values.webhooks.enabled }}
- --webhook-service={{ .Release.Namespace }}/{{ include "pilothouse.name" . }}
- --webhook-secret={{ .Release.Namespace }}/{{ include "pilothouse.secret" . }}
- --webhook-listen=[::]:{{ int .Values.webhooks.port }}
- --webhook-configurations={{ .Values.webhooks.configurations }}
{{- if .Values.webhooks.clientCa }}
- --webhook-client-ca=/client-ca/ca.crt
{{- end }}
{{- if and .Values.rbac.create (eq .Values.webhooks.configurations "host") }}
- {{ printf "--webhook-owner=%s" (include "pilothouse.clusterName" .) | quote }}
{{- end }}
{{- end }}
{{- end -}}
