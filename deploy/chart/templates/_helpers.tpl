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

{{- define "pilothouse.hasConfiguration" -}}
{{- if or .Values.artifacts.trust .Values.artifacts.registries .Values.artifacts.files -}}yes{{- end -}}
{{- end -}}
