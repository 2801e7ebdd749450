{{- define "kerf.image" -}}
{{- with .Values.image -}}
{{ .repository }}{{ if .digest }}@{{ .digest }}{{ else }}:{{ .tag | default $.Chart.AppVersion }}{{ end }}
{{- end -}}
{{- end -}}

{{- define "kerf.pullPolicy" -}}
{{- if ne .Values.image.pullPolicy "IfNotPresent" }}
        imagePullPolicy: {{ .Values.image.pullPolicy }}
{{- end -}}
{{- end -}}

{{- define "kerf.pullSecrets" -}}
{{- with .Values.image.pullSecrets }}
      imagePullSecrets:
{{- range . }}
      - name: {{ . }}
{{- end }}
{{- end -}}
{{- end -}}

{{- define "kerf.logArguments" -}}
{{- if ne .Values.log.level "info" }}
        - --log-level={{ .Values.log.level }}
{{- end }}
{{- if ne .Values.log.format "json" }}
        - --log-format={{ .Values.log.format }}
{{- end }}
{{- if .Values.apiServer.address }}
        - --kubeconfig=/etc/kerf-api-server/kubeconfig
{{- end -}}
{{- end -}}

{{- define "kerf.apiServerMount" -}}
{{- if .Values.apiServer.address }}
        - name: api-server
          mountPath: /etc/kerf-api-server
          readOnly: true
{{- end -}}
{{- end -}}

{{- define "kerf.apiServerVolume" -}}
{{- if .Values.apiServer.address }}
      - name: api-server
        configMap:
          name: kerf-api-server
{{- end -}}
{{- end -}}

{{- /* What plugins need to fetch FPGA images: the proxy, and the authorities that are trusted beside the image's. */ -}}
{{- define "kerf.imageServerVariables" -}}
{{- if .Values.certificateAuthorities }}
        - name: SSL_CERT_FILE # as OpenSSL calls it
          value: /etc/kerf-certificates/ca.crt
{{- end }}
{{- if .Values.proxy.httpsProxy }}
        - name: HTTPS_PROXY
          value: {{ .Values.proxy.httpsProxy | quote }}
        - name: NO_PROXY # always with the API server
{{- $server := regexReplaceAll "^https://" .Values.apiServer.address "" }}
          value: {{ join "," (concat (list "$(KUBERNETES_SERVICE_HOST)") (compact (list $server)) .Values.proxy.noProxy) | quote }}
{{- end -}}
{{- end -}}

{{- define "kerf.certificatesMount" -}}
{{- if .Values.certificateAuthorities }}
        - name: certificates
          mountPath: /etc/kerf-certificates
          readOnly: true
{{- end -}}
{{- end -}}

{{- define "kerf.certificatesVolume" -}}
{{- if .Values.certificateAuthorities }}
      - name: certificates
        configMap:
          name: kerf-certificate-authorities
{{- end -}}
{{- end -}}

{{- /* The backends of a profile, and which of their cards are published, as options of the plugin and its check. */ -}}
{{- define "kerf.backendOptions" -}}
{{- range $backend, $_ := .profile.backends }}
        - --backend={{ $backend }}=/etc/kerf/{{ $backend }}.yaml
{{- end }}
{{- range $backend, $cards := .profile.includeCards }}
{{- range $cards }}
        - --include-card={{ $backend }}={{ . }}
{{- end }}
{{- end }}
{{- range $backend, $cards := .profile.excludeCards }}
{{- range $cards }}
        - --exclude-card={{ $backend }}={{ . }}
{{- end }}
{{- end }}
{{- end -}}

{{- /* The configuration of one backend of a profile, with what the chart knows: mounts and folders. */ -}}
{{- define "kerf.backend" -}}
{{- $config := deepCopy (default (dict) .config) -}}
{{- if eq .backend "simulated" -}}
{{- $config = merge $config (dict "state" (printf "%s/%s" .root.Values.stateFolder .profile.name)) -}}
{{- else if eq .backend "nvidia" -}}
{{- $hook := printf "%s/plugins/gpu.kerf.dev" .root.Values.kubeletRoot -}}
{{- $known := dict "driverRoot" "/driver-root" "hostDriverRoot" (.profile.driverRoot | default "/") "cdiHookFolder" $hook -}}
{{- if .profile.sharing -}}
{{- $known = merge $known (dict "sharingFolder" "/run/kerf/sharing" "sharedMemoryFolder" "/dev/shm/kerf-mps") -}}
{{- end -}}
{{- $config = merge $config $known -}}
{{- end -}}
{{- toYaml $config -}}
{{- end -}}

{{- /* Which driver a family is. A family of another vendor is named by its driver. */ -}}
{{- define "kerf.driver" -}}
{{- $own := dict "gpu" "gpu.kerf.dev" "fpga" "fpga.kerf.dev" "gpu-intel" "gpu-intel.kerf.dev" "shared" "shared.kerf.dev" -}}
{{- $driver := get $own .family | default .family -}}
{{- if not (has $driver .root.Values.drivers) -}}
{{- fail (printf "the profile %s has the family %s, whose driver %s is not in the value drivers" .profile.name .family $driver) -}}
{{- end -}}
{{- $driver -}}
{{- end -}}

{{- /* What the plugin's container and the check before it have in common: dictionaries of root and profile. */ -}}
{{- define "kerf.pluginVariables" }}
{{- if hasKey .profile.backends "nvidia" }}
        - name: NVIDIA_VISIBLE_DEVICES # so that NVIDIA's own runtime, where it is the default, adds no card and no driver
          value: void
{{- end }}
{{- include "kerf.imageServerVariables" .root }}
        - name: POD_UID
          valueFrom:
            fieldRef:
              fieldPath: metadata.uid
        - name: NODE_NAME
          valueFrom:
            fieldRef:
              fieldPath: spec.nodeName
        - name: POD_IP
          valueFrom:
            fieldRef:
              fieldPath: status.podIP
{{- end -}}

{{- define "kerf.pluginRights" }}
          runAsUser: 0 # root owns the kubelet's directories
          readOnlyRootFilesystem: true
{{- if .profile.privileged }}
          privileged: true # the cards' device nodes, and the right to partition them: nothing less gives a pod either
{{- else }}
          allowPrivilegeEscalation: false
          capabilities:
            drop: [ALL]
{{- end }}
{{- end -}}

{{- define "kerf.pluginMounts" }}
        # Sockets and the checkpoint of each family, and no other plugin's; the hook for containers with NVIDIA GPUs is
        # copied there, too. The paths must be the host's, because the kubelet and the container runtime get them.
{{- range $family := $.profile.families }}
        - name: plugin-{{ $family | replace "." "-" }}
          mountPath: {{ $.root.Values.kubeletRoot }}/plugins/{{ include "kerf.driver" (dict "root" $.root "profile" $.profile "family" $family) }}
{{- end }}
        - name: plugins-registry
          mountPath: {{ $.root.Values.kubeletRoot }}/plugins_registry
        - name: pod-resources # which claims pods use: what is in use is never collected
          mountPath: {{ $.root.Values.kubeletRoot }}/pod-resources
          readOnly: true
        - name: cdi
          mountPath: {{ $.root.Values.cdiFolder }}
        - name: hardware
          mountPath: /etc/kerf
        - name: scratch # copies of a checkpoint, which `kerf check` and `kerf checkpoint show` read
          mountPath: /tmp
{{- if hasKey $.profile.backends "simulated" }}
        - name: simulated # what is on the simulated cards
          mountPath: {{ $.root.Values.stateFolder }}/{{ $.profile.name }}
{{- end }}
{{- if hasKey $.profile.backends "nvidia" }}
        - name: driver-root # NVML, and the names of the files that containers get; the driver may be mounted later
          mountPath: /driver-root
          readOnly: true
          mountPropagation: HostToContainer
{{- end }}
{{- if $.profile.privileged }}
        - name: dev # device nodes of cards and of instances, as they come and go
          mountPath: /dev
{{- end }}
{{- if $.profile.devicePlugin }}
        - name: device-plugins # sockets of extended resources, beside the kubelet's own; the path is part of the interface
          mountPath: /var/lib/kubelet/device-plugins
{{- end }}
{{- if $.profile.nodeFeatures }}
        - name: node-features # what the cards are, of which Node Feature Discovery makes labels of the node
          mountPath: /etc/kubernetes/node-feature-discovery/features.d
{{- end }}
{{- if $.profile.maintenanceHooks }}
        - name: maintenance-hooks # programs that CardMaintenances may have run
          mountPath: {{ $.profile.maintenanceHooks }}
          readOnly: true
{{- end }}
{{- if $.profile.sharing }}
        - name: sharing # requests to the daemons of MPS; at the same path as on the host
          mountPath: /run/kerf/sharing
{{- end }}
{{- range $.profile.mounts }}
        - name: {{ .name }}
          mountPath: {{ .path }}
          {{- if .readOnly }}
          readOnly: true
          {{- end }}
{{- end }}
{{- include "kerf.certificatesMount" $.root }}
{{- include "kerf.apiServerMount" $.root }}
{{- end -}}
