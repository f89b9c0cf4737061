{{/* The agent beside an engine, as a strategic merge patch of its Deployment. What it is beside, the pod's template says:
the label loadtide/workload and the annotations below; one that is missing is an empty variable, which is none. The
kustomize component agent-sidecar is the same text. */}}
{{- define "loadtide.agentSidecar" -}}
spec:
  template:
    spec:
      initContainers:
        - name: loadtide-agent
          image: {{ include "loadtide.image" . | quote }}
          restartPolicy: Always             # a sidecar: starts before the engine, ends after it
          command: [loadtide]
          args: [agent]
          env:
            - {name: POD_NAME, valueFrom: {fieldRef: {fieldPath: metadata.name}}}
            - {name: POD_NAMESPACE, valueFrom: {fieldRef: {fieldPath: metadata.namespace}}}
            - {name: WORKLOAD, valueFrom: {fieldRef: {fieldPath: "metadata.labels['loadtide/workload']"}}}
            - {name: LOADTIDE_WORKLOAD, value: $(POD_NAMESPACE)/$(WORKLOAD)}
            - {name: LOADTIDE_SCALER, value: {{ include "loadtide.url" . | quote }}}
            - {name: LOADTIDE_ENGINE, valueFrom: {fieldRef: {fieldPath: "metadata.annotations['loadtide/engine']"}}}
            - {name: LOADTIDE_ENGINE_URL, valueFrom: {fieldRef: {fieldPath: "metadata.annotations['loadtide/engine-url']"}}}
            - {name: LOADTIDE_ENGINE_NAME, valueFrom: {fieldRef: {fieldPath: "metadata.annotations['loadtide/engine-name']"}}}
            - {name: LOADTIDE_OWN_BATCH, valueFrom: {fieldRef: {fieldPath: "metadata.annotations['loadtide/own-batch']"}}}
            - name: LOADTIDE_TOKEN          # the scaler's push token, copied into this namespace
              valueFrom:
                secretKeyRef: {name: {{ .Values.tokens.push.secret | default "loadtide-token" | quote }}, key: {{ .Values.tokens.push.key | quote }}, optional: true}
            {{- if .Values.tokens.read.secret }}
            - name: LOADTIDE_READ_TOKEN     # its read token, likewise: without it no target is told
              valueFrom:
                secretKeyRef: {name: {{ .Values.tokens.read.secret | quote }}, key: {{ .Values.tokens.read.key | quote }}, optional: true}
            {{- end }}
          ports:
            - {name: agent, containerPort: 9410}
          livenessProbe:
            httpGet: {path: /healthz, port: agent}
            periodSeconds: 10
          resources:
            requests: {cpu: 20m, memory: 96Mi}
            limits: {memory: 256Mi}
          securityContext:
            runAsNonRoot: true
            runAsUser: 65532
            runAsGroup: 65532
            allowPrivilegeEscalation: false
            readOnlyRootFilesystem: true
            capabilities: {drop: [ALL]}
            seccompProfile: {type: RuntimeDefault}
{{- end }}
