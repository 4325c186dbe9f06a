{{- /* The name of every object. */ -}}
{{- define "holdfast.name" -}}
{{ .Release.Name | trunc 50 | trimSuffix "-" }}
{{- end -}}

{{- define "holdfast.labels" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- /* The name of the Secret of a value: one that exists, or the one that the chart makes. */ -}}
{{- define "holdfast.secret" -}}
{{ if .secret.name }}{{ .secret.name }}{{ else }}{{ include "holdfast.name" .root }}-secrets{{ end }}
{{- end -}}

{{- /* A variable from a Secret. */ -}}
{{- define "holdfast.variable" -}}
- name: {{ .variable }}
  valueFrom:
    secretKeyRef:
      name: {{ include "holdfast.secret" . }}
      key: {{ .secret.key }}
{{- end -}}
