{{/* No two releases have the same: `loadtide` is the one release of that name, all others end in -loadtide. */}}
{{- define "loadtide.name" -}}
{{- if eq "loadtide" .Release.Name }}loadtide{{ else }}{{ .Release.Name }}-loadtide{{ end }}
{{- end }}

{{/* Of objects that live in no namespace, or in a workload's: another release of this name may be in another. The dot
makes it unique, for no namespace has one in its name. */}}
{{- define "loadtide.clusterName" -}}
{{ .Release.Namespace }}.{{ include "loadtide.name" . }}
{{- end }}

{{- define "loadtide.selector" -}}
app.kubernetes.io/name: loadtide
app.kubernetes.io/instance: {{ .Release.Name | quote }}
{{- end }}

{{- define "loadtide.labels" -}}
{{ include "loadtide.selector" . }}
{{ include "loadtide.origin" . }}
{{- end }}

{{- define "loadtide.origin" -}}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end }}

{{- define "loadtide.image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end }}

{{/* Where gateways, agents and people reach it. */}}
{{- define "loadtide.url" -}}
{{ ternary "https" "http" (ne .Values.tls.http.secret "") }}://{{ include "loadtide.name" . }}.{{ .Release.Namespace }}.svc:8080
{{- end }}

{{- define "loadtide.metadata" -}}
name: {{ include "loadtide.name" . }}
namespace: {{ .Release.Namespace | quote }}
labels:
  {{- include "loadtide.labels" . | nindent 2 }}
{{- end }}

{{/* The agents are other pods than the scaler's: no Service, budget or policy of it may select them. */}}
{{- define "loadtide.agentSelector" -}}
app.kubernetes.io/name: loadtide-gpus
app.kubernetes.io/instance: {{ .Release.Name | quote }}
{{- end }}

{{- define "loadtide.agentLabels" -}}
{{ include "loadtide.agentSelector" . }}
{{ include "loadtide.origin" . }}
{{- end }}

{{/* Of what the Prometheus operator selects by label. */}}
{{- define "loadtide.monitored" -}}
{{ include "loadtide.metadata" . }}
{{- with .Values.monitoring.labels }}
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{- define "loadtide.serviceAccount" -}}
{{- if .Values.serviceAccount.create }}{{ .Values.serviceAccount.name | default (include "loadtide.name" .) }}
{{- else }}{{ .Values.serviceAccount.name | default "default" }}{{ end }}
{{- end }}

{{/* What cannot be meant, said in words. */}}
{{- define "loadtide.refusals" -}}
{{- if and (gt (int .Values.replicas) 1) (ne .Values.store.type "redis") }}
{{- fail (printf "replicas=%d with store.type=%s: each would decide from a memory of its own. Set store.type=redis and store.redisSecret.name, or replicas=1." (int .Values.replicas) .Values.store.type) }}
{{- end }}
{{- if and (eq .Values.store.type "redis") (not .Values.store.redisSecret.name) }}
{{- fail "store.type=redis needs store.redisSecret.name: a Secret whose key `url` is redis://HOST:PORT/DB" }}
{{- end }}
{{- if and (ne .Values.keda.authentication.kind "none") (not .Values.tls.grpc.secret) }}
{{- fail "keda.authentication is for TLS between KEDA and loadtide: set tls.grpc.secret as well, or keda.authentication.kind=none" }}
{{- end }}
{{- if lt (int .Values.terminationGracePeriodSeconds) (add (int .Values.preStopSeconds) 16 | int) }}
{{- fail (printf "terminationGracePeriodSeconds=%d: preStopSeconds=%d and the 15 s that ending may take must fit into it; write at least %d" (int .Values.terminationGracePeriodSeconds) (int .Values.preStopSeconds) (add (int .Values.preStopSeconds) 16)) }}
{{- end }}
{{- end }}
