{{- /* The name of every object. */ -}}
{{- define "limpet.name" -}}
{{ .Release.Name | trunc 50 | trimSuffix "-" }}
{{- end -}}

{{- define "limpet.labels" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- /* The name of the Secret of a value: one that exists, or the one that the chart makes. */ -}}
{{- define "limpet.secret" -}}
{{ if .secret.name }}{{ .secret.name }}{{ else }}{{ include "limpet.name" .root }}-secrets{{ end }}
{{- end -}}

{{- /* A variable from a Secret. */ -}}
{{- define "limpet.variable" -}}
- name: {{ .variable }}
  valueFrom:
    secretKeyRef:
      name: {{ include "limpet.secret" . }}
      key: {{ .secret.key }}
{{- end -}}
