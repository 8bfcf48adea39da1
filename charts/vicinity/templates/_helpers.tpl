{{/*
Names and labels that templates share. toYaml quotes a text that YAML would read as a number
or a boolean: "123" is a valid name of namespaces, releases and labels.
*/}}

{{- define "vicinity.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 40 | trimSuffix "-" -}}
{{- end -}}

{{- define "vicinity.fullname" -}}
{{- $name := .Release.Name -}}
{{- if .Values.fullnameOverride -}}
{{- $name = .Values.fullnameOverride -}}
{{- else if not (contains (include "vicinity.name" .) $name) -}}
{{- $name = printf "%s-%s" $name (include "vicinity.name" .) -}}
{{- end -}}
{{- $name = $name | trunc 40 | trimSuffix "-" -}}
{{- if not (regexMatch "^[a-z]([-a-z0-9]*[a-z0-9])?$" $name) -}}
{{- fail (printf "%q is not a valid prefix for names of objects: it must begin with a letter and have only lower-case letters, digits and hyphens; it comes from the release's name, nameOverride and fullnameOverride: set fullnameOverride" $name) -}}
{{- end -}}
{{- $name -}}
{{- end -}}

{{- define "vicinity.controller" -}}
{{- include "vicinity.fullname" . -}}-controller
{{- end -}}

{{- define "vicinity.proxy" -}}
{{- include "vicinity.fullname" . -}}-proxy
{{- end -}}

{{- define "vicinity.dns" -}}
{{- include "vicinity.fullname" . -}}-dns
{{- end -}}

{{- define "vicinity.webhook" -}}
{{- include "vicinity.fullname" . -}}-webhook
{{- end -}}

{{- define "vicinity.certificate" -}}
{{- include "vicinity.fullname" . -}}-webhook-certificate
{{- end -}}

{{/* The controller's user at the API server. */}}
{{- define "vicinity.user" -}}
system:serviceaccount:{{ .Release.Namespace }}:{{ include "vicinity.controller" . }}
{{- end -}}

{{/* Labels of all objects except those of the proxy and the DNS server. */}}
{{- define "vicinity.labels" -}}
{{ include "vicinity.commonLabels" . }}
{{ include "vicinity.selector" . }}
{{- end -}}

{{/* Labels of the proxy's objects. */}}
{{- define "vicinity.proxyLabels" -}}
{{ include "vicinity.commonLabels" . }}
{{ include "vicinity.proxySelector" . }}
{{- end -}}

{{/* Labels of the DNS server's objects. */}}
{{- define "vicinity.dnsLabels" -}}
{{ include "vicinity.commonLabels" . }}
{{ include "vicinity.dnsSelector" . }}
{{- end -}}

{{- define "vicinity.commonLabels" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- /* "vicinity explain" finds the Deployment by this label, under any name. */}}
app.kubernetes.io/part-of: vicinity
{{- end -}}

{{/* Selector of the controller's pods. It must never change. */}}
{{- define "vicinity.selector" -}}
app.kubernetes.io/name: {{ include "vicinity.name" . | toYaml }}
app.kubernetes.io/instance: {{ toYaml .Release.Name }}
app.kubernetes.io/component: controller
{{- end -}}

{{/* Selector of the proxy's pods. It must never change. */}}
{{- define "vicinity.proxySelector" -}}
app.kubernetes.io/name: {{ include "vicinity.name" . | toYaml }}
app.kubernetes.io/instance: {{ toYaml .Release.Name }}
app.kubernetes.io/component: proxy
{{- end -}}

{{/* Selector of the DNS server's pods. It must never change. */}}
{{- define "vicinity.dnsSelector" -}}
app.kubernetes.io/name: {{ include "vicinity.name" . | toYaml }}
app.kubernetes.io/instance: {{ toYaml .Release.Name }}
app.kubernetes.io/component: dns
{{- end -}}

{{/* Security context of a proxy container: it may change the network of its node, and nothing else. */}}
{{- define "vicinity.proxySecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: [ALL]
  add: [NET_ADMIN]
{{- end -}}

{{/* The ports of the proxy. It has kube-proxy's ports if it replaces kube-proxy. */}}
{{- define "vicinity.proxyHealthPort" -}}
{{- default (ternary 10256 10266 (default false .Values.proxy.allServices)) .Values.proxy.healthPort -}}
{{- end -}}

{{- define "vicinity.proxyMetricsPort" -}}
{{- $port := toString (default (ternary 10249 10267 (default false .Values.proxy.allServices)) .Values.proxy.metricsPort) -}}
{{- if and .Values.metrics.enabled (eq $port (include "vicinity.proxyHealthPort" .)) -}}
{{- fail (printf "proxy.metricsPort: %s is already the port of proxy.healthPort; choose another" $port) -}}
{{- end -}}
{{- $port -}}
{{- end -}}

{{/* Flags of the proxy for connection tracking, as far as values set them. */}}
{{- define "vicinity.proxyConntrack" -}}
{{- $given := default dict .Values.proxy.conntrack -}}
{{- range $flag, $name := dict "max-per-core" "maxPerCore" "min" "min" "tcp-be-liberal" "tcpBeLiberal"
      "tcp-timeout-close-wait" "tcpCloseWaitTimeout" "tcp-timeout-established" "tcpEstablishedTimeout"
      "udp-timeout" "udpTimeout" "udp-timeout-stream" "udpStreamTimeout" -}}
{{- $value := get $given $name -}}
{{- if kindIs "float64" $value -}}
{{- $value = int64 $value -}}
{{- end -}}
{{- if not (or (kindIs "invalid" $value) (has (toString $value) (list "" "false"))) }}
- --conntrack-{{ $flag }}={{ $value }}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* Whether the proxy changes kernel settings of each node: empty or "true". A value of 0 leaves a setting alone. */}}
{{- define "vicinity.proxySetsConntrack" -}}
{{- $given := default dict .Values.proxy.conntrack -}}
{{- $follow := and .Values.proxy.allServices (list "maxPerCore" "tcpEstablishedTimeout" "tcpCloseWaitTimeout") -}}
{{- $set := false -}}
{{- range $name := list "maxPerCore" "tcpEstablishedTimeout" "tcpCloseWaitTimeout" "tcpBeLiberal" "udpTimeout" "udpStreamTimeout" -}}
{{- $value := get $given $name -}}
{{- if or (kindIs "invalid" $value) (eq (toString $value) "") -}}
{{- $set = or $set (has $name (default list $follow)) -}}
{{- else if not (regexMatch "^(false|0+[smh]?)$" (toString $value)) -}}
{{- $set = true -}}
{{- end -}}
{{- end -}}
{{- if $set -}}true{{- end -}}
{{- end -}}

{{/*
Gives each switch that is null the value of the profile. Templates share their values, so one that reads a switch first
includes this or one of the features below.
*/}}
{{- define "vicinity.switches" -}}
{{- if not (hasKey .Values "releasesPods") -}}
{{- $_ := set .Values "releasesPods" (eq (toString (get .Values.rollouts "enabled")) "false") -}}
{{- $pacing := kindIs "bool" (get .Values.rollouts "pacing") -}}
{{- range $switch, $profiles := dict
      "routing.enabled" (list "routing" "names" "all")
      "routing.hints.enabled" (list "routing" "disruption" "all")
      "proxy.enabled" (list "all")
      "dns.enabled" (list "names" "all")
      "locators.enabled" (list "names" "all")
      "disruption.enabled" (list "disruption" "all")
      "rollouts.enabled" (list "disruption" "all")
      "rollouts.scaleDown" (list "disruption" "all")
      "rollouts.pacing" (list "disruption" "all")
      "rollouts.ordinals" (list "disruption" "all") -}}
{{- $path := splitList "." $switch -}}
{{- $group := $.Values -}}
{{- range initial $path -}}
{{- $group = get $group . -}}
{{- end -}}
{{- if not (kindIs "bool" (get $group (last $path))) -}}
{{- $_ := set $group (last $path) (has (default "routing" $.Values.profile) $profiles) -}}
{{- end -}}
{{- end -}}
{{- if not $pacing -}}
{{- /* A profile needs no budgets that the user switched off. */ -}}
{{- $_ := set .Values.rollouts "pacing" (and .Values.rollouts.pacing .Values.disruption.enabled) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* Whether a controller is installed. This and the features below are empty or "true". */}}
{{- define "vicinity.runs" -}}
{{- include "vicinity.switches" . -}}
{{- if or .Values.routing.enabled .Values.locators.enabled .Values.disruption.enabled .Values.rollouts.enabled .Values.rollouts.scaleDown .Values.rollouts.ordinals -}}true{{- end -}}
{{- end -}}

{{/* Whether the controller takes the scheduling gate from waiting pods: after users set rollouts.enabled to false. */}}
{{- define "vicinity.releasesPods" -}}
{{- if and (include "vicinity.runs" .) .Values.releasesPods -}}true{{- end -}}
{{- end -}}

{{- define "vicinity.keepsHints" -}}
{{- if and (include "vicinity.runs" .) .Values.routing.enabled .Values.routing.hints.enabled .Values.webhooks.endpointSlices.enabled -}}true{{- end -}}
{{- end -}}

{{- define "vicinity.answersRequests" -}}
{{- if and (include "vicinity.runs" .) .Values.disruption.enabled .Values.disruption.evictionRequests -}}true{{- end -}}
{{- end -}}

{{- define "vicinity.holdsEvictions" -}}
{{- if and (include "vicinity.runs" .) .Values.disruption.enabled -}}true{{- end -}}
{{- end -}}

{{/* Whether budgets limit scale-downs. */}}
{{- define "vicinity.paces" -}}
{{- include "vicinity.switches" . -}}
{{- if and .Values.rollouts.pacing (not .Values.disruption.enabled) -}}
{{- fail "rollouts.pacing: true is not allowed without disruption.enabled; without budgets nothing limits scale-downs" -}}
{{- end -}}
{{- if .Values.rollouts.pacing -}}true{{- end -}}
{{- end -}}

{{/* Whether the ordinals of StatefulSets alternate between failure domains. */}}
{{- define "vicinity.spreadsOrdinals" -}}
{{- if and (include "vicinity.runs" .) .Values.rollouts.ordinals -}}true{{- end -}}
{{- end -}}

{{- define "vicinity.mutates" -}}
{{- if or (include "vicinity.keepsHints" .) (include "vicinity.paces" .) (include "vicinity.spreadsOrdinals" .) (include "vicinity.holdsEvictions" .) -}}true{{- end -}}
{{- end -}}

{{- define "vicinity.validates" -}}
{{- if or (include "vicinity.holdsEvictions" .) (and .Values.routing.enabled (or .Values.webhooks.services.enabled .Values.webhooks.policies.enabled)) -}}true{{- end -}}
{{- end -}}

{{- define "vicinity.admits" -}}
{{- if or (include "vicinity.mutates" .) (include "vicinity.validates" .) -}}true{{- end -}}
{{- end -}}

{{/* Labels of the nodes that run the proxy. */}}
{{- define "vicinity.proxyNodeSelector" -}}
{{- merge (dict "kubernetes.io/os" "linux") .Values.proxy.nodeSelector | toYaml -}}
{{- end -}}

{{/*
The same nodes in the form for the controller, which waits for each of them: a JSON list of
label selectors. A node that matches any of them runs the proxy. They come from the node
selector and the terms of the node affinity. Values that label selectors cannot express are
refused.
*/}}
{{- define "vicinity.proxyNodes" -}}
{{- $tolerated := list -}}
{{- range .Values.proxy.tolerations -}}
{{- if and (eq (default "" .operator) "Exists") (not .key) -}}
{{- $tolerated = append $tolerated (default "all" .effect) -}}
{{- end -}}
{{- end -}}
{{- $everywhere := or (has "all" $tolerated) (and (has "NoSchedule" $tolerated) (has "NoExecute" $tolerated)) -}}
{{- if and .Values.proxy.enabled (not $everywhere) -}}
{{- fail "proxy.tolerations: the controller could not tell which nodes run the proxy; add {operator: Exists}, or one with each of the effects NoSchedule and NoExecute; to choose nodes use proxy.nodeSelector or proxy.affinity" -}}
{{- end -}}
{{- $all := list -}}
{{- range $key, $value := include "vicinity.proxyNodeSelector" . | fromYaml -}}
{{- $all = append $all (printf "%s=%s" $key $value) -}}
{{- end -}}
{{- range $kind, $_ := .Values.proxy.affinity -}}
{{- if ne $kind "nodeAffinity" -}}
{{- fail (printf "proxy.affinity.%s: the controller could not tell which nodes run the proxy; only nodeAffinity is allowed" $kind) -}}
{{- end -}}
{{- end -}}
{{- $required := dig "nodeAffinity" "requiredDuringSchedulingIgnoredDuringExecution" dict .Values.proxy.affinity -}}
{{- $terms := list -}}
{{- range default list (get $required "nodeSelectorTerms") -}}
{{- if .matchFields -}}
{{- fail "proxy.affinity: matchFields of a node selector term: the controller knows nodes by their labels; use matchExpressions" -}}
{{- end -}}
{{- $texts := $all -}}
{{- range .matchExpressions -}}
{{- $values := join "," (default list .values) -}}
{{- if eq .operator "In" -}}
{{- $texts = append $texts (printf "%s in (%s)" .key $values) -}}
{{- else if eq .operator "NotIn" -}}
{{- $texts = append $texts (printf "%s notin (%s)" .key $values) -}}
{{- else if eq .operator "Exists" -}}
{{- $texts = append $texts .key -}}
{{- else if eq .operator "DoesNotExist" -}}
{{- $texts = append $texts (printf "!%s" .key) -}}
{{- else if eq .operator "Gt" -}}
{{- $texts = append $texts (printf "%s>%s" .key $values) -}}
{{- else if eq .operator "Lt" -}}
{{- $texts = append $texts (printf "%s<%s" .key $values) -}}
{{- else -}}
{{- fail (printf "proxy.affinity: operator %v of a node selector term is not allowed; it must be In, NotIn, Exists, DoesNotExist, Gt or Lt" .operator) -}}
{{- end -}}
{{- end -}}
{{- /* A term without expressions matches no node. */ -}}
{{- if .matchExpressions -}}
{{- $terms = append $terms (join "," $texts) -}}
{{- end -}}
{{- end -}}
{{- if and $required (not $terms) -}}
{{- fail "proxy.affinity: no node selector term has matchExpressions, so no node would run the proxy" -}}
{{- end -}}
{{- default (list (join "," $all)) $terms | toJson -}}
{{- end -}}

{{/* An image. The argument has the root and the image's values. */}}
{{- define "vicinity.image" -}}
{{- if .image.digest -}}
{{- .image.repository }}@{{ .image.digest -}}
{{- else -}}
{{- .image.repository }}:{{ default .root.Chart.AppVersion .image.tag -}}
{{- end -}}
{{- end -}}

{{/*
90 % of the limit of memory, in bytes; empty without a limit. A quantity of Kubernetes is a
number, which may have a power of ten, with a unit. The argument has the resources and their
name in the values.
*/}}
{{- define "vicinity.heap" -}}
{{- $name := .name -}}
{{- with dig "limits" "memory" "" (default dict .resources) -}}
{{- $quantity := . -}}
{{- if not (kindIs "string" .) -}}
{{- $quantity = printf "%.0f" (float64 .) -}}
{{- end -}}
{{- $unit := regexFind "[A-Za-z]+$" $quantity -}}
{{- $units := dict "" 1 "m" 0.001 "k" 1e3 "M" 1e6 "G" 1e9 "T" 1e12 "P" 1e15 "E" 1e18
      "Ki" 1024 "Mi" 1048576 "Gi" 1073741824 "Ti" 1099511627776 "Pi" 1125899906842624 "Ei" 1152921504606846976 -}}
{{- if not (and (hasKey $units $unit) (regexMatch "^[+]?([0-9]+[.]?[0-9]*|[.][0-9]+)([eE][+-]?[0-9]+)?$" (trimSuffix $unit $quantity))) -}}
{{- fail (printf "%s.limits.memory: %q is not a quantity; use one such as 1Gi" $name $quantity) -}}
{{- end -}}
{{- printf "%.0f" (mulf 0.9 (float64 (trimSuffix $unit $quantity)) (get $units $unit)) -}}
{{- end -}}
{{- end -}}

{{/* Refuses a port that a pod of the controller would use twice: the pod could not start. */}}
{{- define "vicinity.ports" -}}
{{- $taken := dict "8081" "the health checks" -}}
{{- if .Values.profiling.enabled -}}
{{- $_ := set $taken "6060" "profiling" -}}
{{- end -}}
{{- if .Values.metrics.enabled -}}
{{- include "vicinity.port" (dict "taken" $taken "name" "metrics.port" "port" .Values.metrics.port) -}}
{{- end -}}
{{- if include "vicinity.admits" . -}}
{{- include "vicinity.port" (dict "taken" $taken "name" "webhooks.port" "port" .Values.webhooks.port) -}}
{{- end -}}
{{- end -}}

{{- define "vicinity.port" -}}
{{- $port := printf "%v" .port -}}
{{- with get .taken $port -}}
{{- fail (printf "%s: %s is already the port of %s; choose another" $.name $port .) -}}
{{- end -}}
{{- $_ := set .taken $port .name -}}
{{- end -}}

{{/* The address of a webhook for the API server. The argument has the root and a path. */}}
{{- define "vicinity.clientConfig" -}}
clientConfig:
  service:
    name: {{ include "vicinity.webhook" .root }}
    namespace: {{ toYaml .root.Release.Namespace }}
    path: {{ .path }}
    port: 443
{{- end -}}

{{/* The namespaces whose objects the webhooks see. */}}
{{- define "vicinity.namespaceSelector" -}}
namespaceSelector:
  matchExpressions:
  - key: kubernetes.io/metadata.name
    operator: NotIn
    values: {{ append (default list .Values.routing.excludedNamespaces) .Release.Namespace | uniq | sortAlpha | toJson }}
{{- end -}}
