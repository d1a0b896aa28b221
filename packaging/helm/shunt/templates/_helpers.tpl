{{/* Name of the objects. */}}
{{- define "shunt.name" -}}
{{- if contains .Chart.Name .Release.Name }}{{ .Release.Name | trunc 52 | trimSuffix "-" }}
{{- else }}{{ printf "%s-%s" .Release.Name .Chart.Name | trunc 52 | trimSuffix "-" }}{{ end }}
{{- end }}

{{/* Labels that pods are found by. They must not change. */}}
{{- define "shunt.selector" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "shunt.labels" -}}
{{ include "shunt.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/component: {{ .Values.mode }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end }}

{{- define "shunt.image" -}}
{{- with .Values.image -}}
{{- $repository := required "image.repository: name the repository that has the image, such as registry.example/shunt" .repository -}}
{{- if .digest }}{{ $repository }}@{{ .digest }}{{ else }}{{ $repository }}:{{ .tag | default $.Chart.AppVersion }}{{ end }}
{{- end }}
{{- end }}

{{/* A value of an option in TOML. YAML's numbers are floats here; no option is one. */}}
{{- define "shunt.toml" -}}
{{- if kindIs "slice" . }}[{{ range $i, $value := . }}{{ if $i }}, {{ end }}{{ include "shunt.toml" $value }}{{ end }}]
{{- else if kindIs "bool" . }}{{ . }}
{{- else if kindIs "string" . }}{{ toJson . }}
{{- else if kindIs "map" . }}{{ fail "config: a table belongs into extraConfig" }}
{{- else if kindIs "invalid" . }}{{ fail "config: an option has no value" }}
{{- else }}{{ if ne (float64 (int64 .)) (float64 .) }}{{ fail (printf "config: %v is not whole" .) }}{{ end }}{{ int64 . }}
{{- end }}
{{- end }}

{{/* shunt.toml. */}}
{{- define "shunt.config" -}}
{{- $values := .Values -}}
{{- $set := dict -}}
{{- $any := ternary "[::]" "0.0.0.0" $values.ipv6 -}}
{{- $_ := set $set "listen" (list (ternary "127.0.0.1:9042" (printf "%s:9042" $any) (eq $values.mode "sidecar"))) -}}
{{- $_ := set $set "admin" (printf "%s:9180" $any) -}}
{{- $_ := set $set "contact_points" (compact $values.contactPoints) -}}
{{- with $values.localDatacentre }}{{ $_ := set $set "local_datacentre" . }}{{ end -}}
{{- $_ := set $set "cores" $values.cores -}}
{{- $_ := set $set "drain_timeout_ms" (printf "%ds" (int64 $values.drainSeconds)) -}}
{{- if $values.advertise }}{{ $_ := set $set "advertise" $values.advertise -}}
{{- else if eq $values.mode "tier" -}}
{{- $_ := set $set "advertise" (printf "%s.%s.svc:%d" (include "shunt.name" .) .Release.Namespace (int64 $values.service.port)) -}}
{{- end -}}
{{- if $values.login.username -}}
{{- $_ := set $set "username" $values.login.username -}}
{{- $_ := set $set "password_file" (printf "/etc/shunt/login/%s" $values.login.passwordKey) -}}
{{- end -}}
{{- with $values.tls }}{{ if .secretName -}}
{{- $_ := set $set "tls" .mode -}}
{{- $_ := set $set "tls_certificate" "/etc/shunt/tls/tls.crt" -}}
{{- $_ := set $set "tls_key" "/etc/shunt/tls/tls.key" -}}
{{- if ne .clientAuth "none" -}}
{{- $_ := set $set "tls_client_auth" .clientAuth -}}
{{- $_ := set $set "tls_client_ca" (printf "/etc/shunt/tls/%s" .clientCAKey) -}}
{{- end -}}
{{- end }}{{ end -}}
{{- with $values.nodeTLS }}{{ if .enabled -}}
{{- $_ := set $set "node_tls" "on" -}}
{{- $_ := set $set "node_tls_verify" .verify -}}
{{- if ne .verify "none" -}}
{{- $_ := required "nodeTLS.secretName: name the Secret with the authority of the nodes' certificates" .secretName -}}
{{- $_ := set $set "node_tls_ca" (printf "/etc/shunt/node-tls/%s" .caKey) -}}
{{- end -}}
{{- with .name }}{{ $_ := set $set "node_tls_name" . }}{{ end -}}
{{- if .clientCertificate -}}
{{- $_ := set $set "node_tls_certificate" "/etc/shunt/node-tls/tls.crt" -}}
{{- $_ := set $set "node_tls_key" "/etc/shunt/node-tls/tls.key" -}}
{{- end -}}
{{- end }}{{ end -}}
{{- if $values.admin.tokenSecretName }}{{ $_ := set $set "admin_token_file" (printf "/etc/shunt/admin/%s" $values.admin.tokenKey) }}{{ end -}}
{{- if eq $values.mode "fleet" -}}
{{- $_ := set $set "fleet" $values.fleet.name -}}
{{- $_ := set $set "fleet_state" "/run/shunt/fleet" -}}
{{- with $values.fleet.tls }}{{ if .enabled -}}
{{- $_ := set $set "fleet_tls" "on" -}}
{{- $_ := set $set "fleet_tls_ca" (printf "/etc/shunt/tls/%s" .caKey) -}}
{{- $_ := set $set "fleet_tls_name" (.name | default (printf "%s.%s.svc" (include "shunt.name" $) $.Release.Namespace)) -}}
{{- end }}{{ end -}}
{{- end -}}
{{- range $key, $value := $values.config -}}
{{- if hasKey $set $key }}{{ fail (printf "config.%s: the chart sets it from another value" $key) }}{{ end -}}
{{- $_ := set $set $key $value -}}
{{- end -}}
{{- range $key, $value := $set -}}
{{ $key }} = {{ include "shunt.toml" $value }}
{{ end }}
{{- with $values.extraConfig }}
{{ . }}
{{- end }}
{{- end }}

{{/* What the values rule out together. */}}
{{- define "shunt.check" -}}
{{- with .Values -}}
{{- if not (compact .contactPoints) }}{{ fail "contactPoints: name nodes of the ring" }}{{ end -}}
{{- if and .login.username (not .login.secretName) }}{{ fail "login.secretName: name the Secret with the password of login.username" }}{{ end -}}
{{- if and .login.secretName (not .login.username) }}{{ fail "login.username: name the role whose password login.secretName has" }}{{ end -}}
{{- if and (eq .mode "fleet") .tls.secretName (eq .tls.mode "required") (not .fleet.tls.enabled) -}}
{{- fail "tls.mode: required refuses the other proxies of the fleet, which connect in clear text: set fleet.tls.enabled, or tls.mode to optional" -}}
{{- end -}}
{{- if and (eq .mode "fleet") .fleet.tls.enabled (not .tls.secretName) }}{{ fail "fleet.tls.enabled: the proxies show each other the certificate of tls.secretName: name that Secret" }}{{ end -}}
{{- $spec := .sidecar.podSpec -}}
{{- if and (eq .mode "sidecar") (hasKey $spec "terminationGracePeriodSeconds") -}}
{{- if lt (int64 $spec.terminationGracePeriodSeconds) (int64 (add .drainSeconds 15)) }}{{ fail (printf "sidecar.podSpec.terminationGracePeriodSeconds: the proxy drains after the application has ended: set at least drainSeconds and 15, which is %d, and the time that the application needs" (add .drainSeconds 15)) }}{{ end -}}
{{- end -}}
{{- if and (eq .mode "sidecar") (not .sidecar.podSpec.containers) }}{{ fail "sidecar.podSpec.containers: name the containers of the application" }}{{ end -}}
{{- if and (eq .mode "sidecar") .networkPolicy.enabled }}{{ fail "networkPolicy: in mode sidecar it would close the application's own ports; write a policy for the application" }}{{ end -}}
{{- if and (ne .tls.clientAuth "none") (not .tls.secretName) }}{{ fail "tls.clientAuth: certificates of clients need tls.secretName" }}{{ end -}}
{{- if .config.admin_tls_client_ca }}{{ fail "config.admin_tls_client_ca: the kubelet has no certificate for its probes; use admin.tokenSecretName" }}{{ end -}}
{{- if .config.admin_tls_certificate }}{{ fail "config.admin_tls_certificate: the probes use http; use admin.tokenSecretName" }}{{ end -}}
{{- end -}}
{{- end }}

{{/* The proxy's container. */}}
{{- define "shunt.container" -}}
{{- $values := .Values -}}
name: shunt
image: {{ include "shunt.image" . | quote }}
imagePullPolicy: {{ $values.image.pullPolicy }}
{{- if and (eq $values.mode "fleet") (not $values.advertise) }}
args: [proxy, --config, /etc/shunt/config/shunt.toml, --advertise, {{ ternary "[$(POD_IP)]:9042" "$(POD_IP):9042" $values.ipv6 | quote }}]
env:
  - name: POD_IP
    valueFrom:
      fieldRef:
        fieldPath: status.podIP
{{- else }}
args: [proxy, --config, /etc/shunt/config/shunt.toml]
{{- end }}
ports:
  {{- if ne $values.mode "sidecar" }}
  - name: cql
    containerPort: 9042
  {{- end }}
  - name: shunt-admin
    containerPort: 9180
# While the ring is not known yet, a restart would not help: readiness alone waits for it.
livenessProbe:
  httpGet:
    path: /healthz
    port: shunt-admin
  periodSeconds: 10
  timeoutSeconds: 5
  failureThreshold: 3
readinessProbe:
  httpGet:
    path: /readyz
    port: shunt-admin
  periodSeconds: 2
  timeoutSeconds: 2
  failureThreshold: 2
{{- if eq $values.mode "sidecar" }}
# The application starts when the proxy is ready.
startupProbe:
  httpGet:
    path: /readyz
    port: shunt-admin
  periodSeconds: 1
  timeoutSeconds: 2
  failureThreshold: 300
{{- else }}
# SIGTERM drains. It waits until load balancers have learned that this pod takes no more clients.
lifecycle:
  preStop:
    sleep:
      seconds: {{ $values.preStopSeconds }}
{{- end }}
resources:
  {{- toYaml $values.resources | nindent 2 }}
securityContext:
  allowPrivilegeEscalation: false
  capabilities:
    drop: [ALL]
  readOnlyRootFilesystem: true
  runAsNonRoot: true
  runAsUser: 65532
  runAsGroup: 65532
  seccompProfile:
    type: RuntimeDefault
volumeMounts:
  - name: shunt-config
    mountPath: /etc/shunt/config
    readOnly: true
  - name: shunt-run
    mountPath: /run/shunt
  {{- if $values.login.secretName }}
  - name: shunt-login
    mountPath: /etc/shunt/login
    readOnly: true
  {{- end }}
  {{- if $values.tls.secretName }}
  - name: shunt-tls
    mountPath: /etc/shunt/tls
    readOnly: true
  {{- end }}
  {{- if and $values.nodeTLS.enabled $values.nodeTLS.secretName }}
  - name: shunt-node-tls
    mountPath: /etc/shunt/node-tls
    readOnly: true
  {{- end }}
  {{- if $values.admin.tokenSecretName }}
  - name: shunt-admin
    mountPath: /etc/shunt/admin
    readOnly: true
  {{- end }}
{{- end }}

{{/* Volumes of the proxy. Whole directories, so that renewed Secrets arrive. */}}
{{- define "shunt.volumes" -}}
{{- $values := .Values -}}
- name: shunt-config
  configMap:
    name: {{ include "shunt.name" . }}
# Unix sockets, and the fleet's state: it outlives the process, and a pod stays on its host.
- name: shunt-run
  emptyDir: {}
{{- if $values.login.secretName }}
- name: shunt-login
  secret:
    secretName: {{ $values.login.secretName }}
    defaultMode: 0440
{{- end }}
{{- if $values.tls.secretName }}
- name: shunt-tls
  secret:
    secretName: {{ $values.tls.secretName }}
    defaultMode: 0440
{{- end }}
{{- if and $values.nodeTLS.enabled $values.nodeTLS.secretName }}
- name: shunt-node-tls
  secret:
    secretName: {{ $values.nodeTLS.secretName }}
    defaultMode: 0440
{{- end }}
{{- if $values.admin.tokenSecretName }}
- name: shunt-admin
  secret:
    secretName: {{ $values.admin.tokenSecretName }}
    defaultMode: 0440
{{- end }}
{{- end }}

{{/* Annotations and labels of pods. A new configuration replaces the pods; a renewed Secret does not. */}}
{{- define "shunt.podMetadata" -}}
labels:
  {{- include "shunt.labels" . | nindent 2 }}
  {{- with .Values.podLabels }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
annotations:
  checksum/config: {{ include "shunt.config" . | sha256sum }}
  {{- with .Values.podAnnotations }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end }}

{{/* The pods of a tier and of a fleet. */}}
{{- define "shunt.pod" -}}
{{- $values := .Values -}}
metadata:
  {{- include "shunt.podMetadata" . | nindent 2 }}
spec:
  automountServiceAccountToken: false
  enableServiceLinks: false
  # preStop, the drain, ten seconds for closing, and some slack.
  terminationGracePeriodSeconds: {{ add $values.preStopSeconds $values.drainSeconds 15 }}
  securityContext:
    runAsNonRoot: true
    fsGroup: 65532
    fsGroupChangePolicy: OnRootMismatch
  {{- with $values.imagePullSecrets }}
  imagePullSecrets:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with $values.priorityClassName }}
  priorityClassName: {{ . }}
  {{- end }}
  topologySpreadConstraints:
    {{- if $values.topologySpread.custom }}
    {{- toYaml $values.topologySpread.custom | nindent 4 }}
    {{- else }}
    {{- range $key, $when := dict "topology.kubernetes.io/zone" $values.topologySpread.zones "kubernetes.io/hostname" $values.topologySpread.hosts }}
    - maxSkew: 1
      topologyKey: {{ $key }}
      whenUnsatisfiable: {{ $when }}
      labelSelector:
        matchLabels:
          {{- include "shunt.selector" $ | nindent 10 }}
    {{- end }}
    {{- end }}
  containers:
    - {{ include "shunt.container" . | nindent 6 | trim }}
  volumes:
    {{- include "shunt.volumes" . | nindent 4 }}
  {{- with $values.nodeSelector }}
  nodeSelector:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with $values.affinity }}
  affinity:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with $values.tolerations }}
  tolerations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
{{- end }}
