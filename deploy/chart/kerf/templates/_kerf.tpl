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
