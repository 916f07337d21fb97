{{/* Labels that every object carries. */}}
{{- define "allot.labels" -}}
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version | replace "+" "_" }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
{{ include "allot.selector" . }}
{{- with .root.Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{/* Labels that select the pods of one component. They never change between versions of the chart. */}}
{{- define "allot.selector" -}}
app.kubernetes.io/name: {{ .root.Values.nameOverride | default "allot" }}
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .component }}
{{- end }}

{{/* Name of a component's objects: allot-scheduler for a release named allot. */}}
{{- define "allot.name" -}}
{{- $base := .root.Values.nameOverride | default "allot" -}}
{{- if eq .root.Release.Name $base -}}
{{- printf "%s-%s" $base .component | trunc 63 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s-%s" .root.Release.Name $base .component | trunc 63 | trimSuffix "-" -}}
{{- end -}}
{{- end }}

{{- define "allot.image" -}}
{{- $image := .root.Values.image -}}
{{- if $image.digest -}}
{{ $image.repository }}@{{ $image.digest }}
{{- else -}}
{{ $image.repository }}:{{ $image.tag | default .root.Chart.AppVersion }}
{{- end -}}
{{- end }}

{{/* What Pod Security "restricted" demands of a pod. */}}
{{- define "allot.podSecurity" -}}
runAsNonRoot: true
runAsUser: 65532
runAsGroup: 65532
fsGroup: 65532
seccompProfile: {type: RuntimeDefault}
{{- end }}

{{/* What Pod Security "restricted" demands of a container. */}}
{{- define "allot.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
runAsNonRoot: true
capabilities: {drop: [ALL]}
seccompProfile: {type: RuntimeDefault}
{{- end }}

{{/* A time of whole seconds, minutes or hours in seconds; empty for others. */}}
{{- define "allot.seconds" -}}
{{- if regexMatch "^[0-9]+[smh]$" . -}}
{{- $count := regexFind "^[0-9]+" . | int -}}
{{- mul $count (get (dict "s" 1 "m" 60 "h" 3600) (regexFind "[smh]$" .)) -}}
{{- end -}}
{{- end }}

{{/* Refuses values that each may be, and together not: the scheduler would end at its start, or two would run at once. */}}
{{- define "allot.checkScheduler" -}}
{{- $election := merge (dict) (.config.leaderElection | default dict) .leaderElection -}}
{{- if and (gt (int .replicas) 1) (eq (toString (get $election "leaderElect")) "false") -}}
{{- fail "scheduler.config.leaderElection.leaderElect=false: without a leader several replicas schedule the same pods; set scheduler.replicas=1" -}}
{{- end -}}
{{- $lease := include "allot.seconds" $election.leaseDuration -}}
{{- $renew := include "allot.seconds" $election.renewDeadline -}}
{{- $retry := include "allot.seconds" $election.retryPeriod -}}
{{- if and $lease $renew (le (int $lease) (int $renew)) -}}
{{- fail (printf "scheduler.leaderElection: leaseDuration %s must be longer than renewDeadline %s" $election.leaseDuration $election.renewDeadline) -}}
{{- end -}}
{{- if and $renew $retry (ge (mul (int $retry) 12) (mul (int $renew) 10)) -}}
{{- fail (printf "scheduler.leaderElection: renewDeadline %s must be longer than 1.2 times retryPeriod %s" $election.renewDeadline $election.retryPeriod) -}}
{{- end -}}
{{- end }}

{{/* Where the pods of a component may run. By default its replicas prefer different nodes. */}}
{{- define "allot.placement" -}}
{{- with .values.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- with .values.nodeSelector }}
nodeSelector: {{ toYaml . | nindent 2 }}
{{- end }}
{{- with .values.tolerations }}
tolerations: {{ toYaml . | nindent 0 }}
{{- end }}
{{- if .values.affinity }}
affinity: {{ toYaml .values.affinity | nindent 2 }}
{{- else if .spread }}
affinity:
  podAntiAffinity:
    preferredDuringSchedulingIgnoredDuringExecution:
    - weight: 100
      podAffinityTerm:
        topologyKey: kubernetes.io/hostname
        labelSelector:
          matchLabels: {{ include "allot.selector" . | nindent 12 }}
{{- end }}
{{- with .values.topologySpreadConstraints }}
topologySpreadConstraints: {{ toYaml . | nindent 0 }}
{{- end }}
{{- end }}

{{/* Startup, liveness and readiness on the port that serves health and metrics over TLS. */}}
{{- define "allot.probes" -}}
startupProbe:
  httpGet: {path: /livez, port: https, scheme: HTTPS}
  periodSeconds: 2
  failureThreshold: 30
livenessProbe:
  httpGet: {path: /livez, port: https, scheme: HTTPS}
  periodSeconds: 10
  timeoutSeconds: 5
  failureThreshold: 6
readinessProbe:
  httpGet: {path: /readyz, port: https, scheme: HTTPS}
  periodSeconds: 5
{{- end }}

{{/* A Role that permits a component to hold its own Lease, and nothing else of its namespace. */}}
{{- define "allot.leaseRole" -}}
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata:
  name: {{ include "allot.name" . }}
  namespace: {{ .root.Release.Namespace }}
  labels: {{ include "allot.labels" . | nindent 4 }}
rules:
# RBAC cannot restrict the name of an object that does not exist yet.
- apiGroups: [coordination.k8s.io]
  resources: [leases]
  verbs: [create]
- apiGroups: [coordination.k8s.io]
  resources: [leases]
  resourceNames: [{{ include "allot.name" . }}]
  verbs: [get, update]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata:
  name: {{ include "allot.name" . }}
  namespace: {{ .root.Release.Namespace }}
  labels: {{ include "allot.labels" . | nindent 4 }}
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: Role
  name: {{ include "allot.name" . }}
subjects:
- kind: ServiceAccount
  name: {{ include "allot.name" . }}
  namespace: {{ .root.Release.Namespace }}
{{- end }}

{{/* The account of a component, and the binding of its ClusterRole. */}}
{{- define "allot.account" -}}
apiVersion: v1
kind: ServiceAccount
metadata:
  name: {{ include "allot.name" . }}
  namespace: {{ .root.Release.Namespace }}
  labels: {{ include "allot.labels" . | nindent 4 }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata:
  name: {{ include "allot.name" . }}
  labels: {{ include "allot.labels" . | nindent 4 }}
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: ClusterRole
  name: {{ include "allot.name" . }}
subjects:
- kind: ServiceAccount
  name: {{ include "allot.name" . }}
  namespace: {{ .root.Release.Namespace }}
{{- end }}

{{/* The right to ask the API server about the tokens and the rights of those that read /metrics. */}}
{{- define "allot.authDelegator" -}}
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata:
  name: {{ include "allot.name" . }}-auth-delegator
  labels: {{ include "allot.labels" . | nindent 4 }}
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: ClusterRole
  name: system:auth-delegator
subjects:
- kind: ServiceAccount
  name: {{ include "allot.name" . }}
  namespace: {{ .root.Release.Namespace }}
{{- end }}

{{- define "allot.podMonitor" -}}
apiVersion: monitoring.coreos.com/v1
kind: PodMonitor
metadata:
  name: {{ include "allot.name" . }}
  namespace: {{ .root.Release.Namespace }}
  labels: {{ include "allot.labels" . | nindent 4 }}
    {{- with .root.Values.metrics.podMonitor.labels }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
spec:
  selector:
    matchLabels: {{ include "allot.selector" . | nindent 6 }}
  podMetricsEndpoints:
  - port: https
    scheme: https
    interval: {{ .root.Values.metrics.podMonitor.interval }}
    # The certificate is made at each start; the token proves the reader.
    tlsConfig: {insecureSkipVerify: true}
    bearerTokenSecret: {name: {{ .root.Values.metrics.podMonitor.tokenSecret }}, key: token}
{{- end }}

{{- define "allot.networkPolicy" -}}
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata:
  name: {{ include "allot.name" . }}
  namespace: {{ .root.Release.Namespace }}
  labels: {{ include "allot.labels" . | nindent 4 }}
spec:
  podSelector:
    matchLabels: {{ include "allot.selector" . | nindent 6 }}
  policyTypes: [Ingress]
  {{- with .root.Values.networkPolicy.metricsFrom }}
  ingress:
  - ports:
    - {protocol: TCP, port: https}
    from: {{ toYaml . | nindent 4 }}
  {{- else }}
  # No peer: a rule with an empty list of peers would admit all peers.
  ingress: []
  {{- end }}
{{- end }}

{{- define "allot.disruptionBudget" -}}
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata:
  name: {{ include "allot.name" . }}
  namespace: {{ .root.Release.Namespace }}
  labels: {{ include "allot.labels" . | nindent 4 }}
spec:
  maxUnavailable: 1
  selector:
    matchLabels: {{ include "allot.selector" . | nindent 6 }}
{{- end }}

{{/* What policies about a driver have in common: its requests, and the node that its token names. */}}
{{- define "allot.ofThisDriver" -}}
matchConditions:
- name: is-this-driver
  expression: >-
    request.userInfo.username == "system:serviceaccount:{{ .root.Release.Namespace }}:{{ include "allot.name" . }}"
variables:
- name: userNode
  expression: >-
    request.userInfo.?extra[?'authentication.kubernetes.io/node-name'][0].orValue('')
{{- end }}

{{/* The binding of `policy`, which denies. */}}
{{- define "allot.denyBinding" -}}
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata:
  name: {{ .policy }}
  labels: {{ include "allot.labels" . | nindent 4 }}
spec:
  policyName: {{ .policy }}
  validationActions: [Deny]
{{- end }}

{{/* A policy that keeps the driver of a component to the slices of the node that its pod runs on. */}}
{{- define "allot.nodePolicy" -}}
# The token of a pod names the node that the pod is bound to. A driver that was taken over on one node cannot change the
# slices of another one.
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata:
  name: {{ include "allot.name" . }}
  labels: {{ include "allot.labels" . | nindent 4 }}
spec:
  failurePolicy: Fail
  matchConstraints:
    resourceRules:
    - apiGroups: [resource.k8s.io]
      apiVersions: ["*"]
      operations: [CREATE, UPDATE, DELETE]
      resources: [resourceslices]
  {{- include "allot.ofThisDriver" . | nindent 2 }}
  - name: sliceNode
    expression: >-
      (request.operation == "DELETE" ? oldObject : object).spec.?nodeName.orValue("")
  validations:
  - expression: variables.userNode != ""
    message: the token names no node; it must be the projected token of a pod
  - expression: variables.userNode == variables.sliceNode
    messageExpression: >-
      "the driver on node '" + variables.userNode + "' may not change the slices of node '" + variables.sliceNode + "'"
---
{{ include "allot.denyBinding" (merge (dict "policy" (include "allot.name" .)) .) }}
{{- end }}

{{/* Keeps a driver to its own devices on its node in the status of claims. */}}
{{- define "allot.claimStatusPolicy" -}}
# Of the status of claims the driver may change what it says about the devices of its node, and nothing else.
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata:
  name: {{ include "allot.name" . }}-claims
  labels: {{ include "allot.labels" . | nindent 4 }}
spec:
  failurePolicy: Fail
  matchConstraints:
    resourceRules:
    - apiGroups: [resource.k8s.io]
      apiVersions: ["*"]
      operations: [UPDATE]
      resources: [resourceclaims/status]
  {{- include "allot.ofThisDriver" . | nindent 2 }}
  validations:
  - expression: variables.userNode != ""
    message: the token names no node; it must be the projected token of a pod
  - expression: >-
      object.?status.?allocation == oldObject.?status.?allocation &&
      object.?status.?reservedFor == oldObject.?status.?reservedFor
    message: a driver may not allocate, deallocate or reserve claims
  - expression: >-
      object.?status.?devices.orValue([]).filter(d, d.driver != {{ .driver | quote }} || d.pool != variables.userNode) ==
      oldObject.?status.?devices.orValue([]).filter(d, d.driver != {{ .driver | quote }} || d.pool != variables.userNode)
    messageExpression: >-
      "the driver on node '" + variables.userNode + "' may only report the status of its own devices there"
---
{{ include "allot.denyBinding" (merge (dict "policy" (printf "%s-claims" (include "allot.name" .))) .) }}
{{- end }}

{{/* The certificate that a component serves with: the name of its Secret. */}}
{{- define "allot.certificateSecret" -}}
{{ .values.certificate.secretName | default (printf "%s-cert" (include "allot.name" .)) }}
{{- end }}

{{/* The certificate of a component's Service, by cert-manager: self-signed, or from an issuer that the values name. */}}
{{- define "allot.certificate" -}}
{{- if empty .values.certificate.issuerRef -}}
apiVersion: cert-manager.io/v1
kind: Issuer
metadata:
  name: {{ include "allot.name" . }}
  namespace: {{ .root.Release.Namespace }}
  labels: {{ include "allot.labels" . | nindent 4 }}
spec:
  selfSigned: {}
---
{{ end -}}
apiVersion: cert-manager.io/v1
kind: Certificate
metadata:
  name: {{ include "allot.name" . }}
  namespace: {{ .root.Release.Namespace }}
  labels: {{ include "allot.labels" . | nindent 4 }}
spec:
  secretName: {{ include "allot.certificateSecret" . }}
  dnsNames:
  - {{ include "allot.name" . }}.{{ .root.Release.Namespace }}.svc
  {{- range .values.hosts }}
  - {{ regexReplaceAll ":[0-9]+$" . "" }}
  {{- end }}
  privateKey: {algorithm: ECDSA, rotationPolicy: Always}
  {{- with .values.certificate.issuerRef }}
  issuerRef: {{ toYaml . | nindent 4 }}
  {{- else }}
  issuerRef: {kind: Issuer, name: {{ include "allot.name" . }}}
  {{- end }}
{{- end }}
