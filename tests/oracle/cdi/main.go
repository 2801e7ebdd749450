// Answers, with the Go library of container-device-interface, the questions the Python library answers too.
//
// Reads one JSON record per line and writes one JSON answer per line, in order. A record has an "op":
//
//	parse      a file's content ("data", base64) under a file name ("name")
//	qname      one qualified device name ("arg")
//	annkey     a plugin and a device id ("arg")
//	annparse   annotations ("ann")
//	transient  vendor, class and id ("arg")
//	inject     spec files by directory, lowest priority first ("dirs"), an OCI spec ("oci"), names ("devices")
//	time       directories ("arg") and names ("devices"): seconds of CPU to read, to inject and to refresh
//
// Every answer has "ok"; "panic" is true where the library panics.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"sort"
	"strings"
	"syscall"

	oci "github.com/opencontainers/runtime-spec/specs-go"
	"tags.cncf.io/container-device-interface/pkg/cdi"
	"tags.cncf.io/container-device-interface/pkg/parser"
	specs "tags.cncf.io/container-device-interface/specs-go"
)

type record struct {
	Op      string
	Name    string
	Data    []byte
	Arg     []string
	Ann     map[string]string
	Dirs    []map[string]string
	OCI     *oci.Spec
	Devices []string
}

type answer map[string]any

func main() {
	scratch, err := os.MkdirTemp("", "cdi-oracle-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	defer os.RemoveAll(scratch)

	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, 64<<20)
	answers := json.NewEncoder(os.Stdout)
	answers.SetEscapeHTML(false)
	for lines.Scan() {
		var r record
		if err := json.Unmarshal(lines.Bytes(), &r); err != nil {
			_ = answers.Encode(answer{"ok": false, "error": "no record: " + err.Error()})
			continue
		}
		_ = answers.Encode(respond(scratch, r))
	}
}

func respond(scratch string, r record) (a answer) {
	defer func() {
		if p := recover(); p != nil {
			a = answer{"ok": false, "panic": true, "error": fmt.Sprint(p)}
		}
	}()
	switch r.Op {
	case "parse":
		return parse(scratch, r)
	case "qname":
		vendor, class, device, err := parser.ParseQualifiedName(r.Arg[0])
		return outcome(err, answer{"vendor": vendor, "class": class, "device": device})
	case "annkey":
		key, err := cdi.AnnotationKey(r.Arg[0], r.Arg[1])
		return outcome(err, answer{"key": key})
	case "annparse":
		keys, devices, err := cdi.ParseAnnotations(r.Ann)
		sort.Strings(keys)
		return outcome(err, answer{"keys": keys, "devices": devices})
	case "transient":
		return answer{"ok": true, "name": cdi.GenerateTransientSpecName(r.Arg[0], r.Arg[1], r.Arg[2])}
	case "inject":
		return inject(scratch, r)
	case "time":
		return timed(r)
	}
	return answer{"ok": false, "error": "unknown op " + r.Op}
}

func outcome(err error, a answer) answer {
	a["ok"] = err == nil
	if err != nil {
		a["error"] = err.Error()
	}
	return a
}

func parse(scratch string, r record) answer {
	path := filepath.Join(scratch, r.Name)
	if err := os.WriteFile(path, r.Data, 0o600); err != nil {
		return outcome(err, answer{})
	}
	defer os.Remove(path)
	spec, err := cdi.ReadSpec(path, 0)
	if err != nil {
		return outcome(err, answer{})
	}
	version, err := specs.MinimumRequiredVersion(spec.Spec)
	return outcome(err, answer{"spec": spec.Spec, "min_version": version})
}

func inject(scratch string, r record) answer {
	root, err := os.MkdirTemp(scratch, "dirs-")
	if err != nil {
		return outcome(err, answer{})
	}
	defer os.RemoveAll(root)
	var dirs []string
	for i, files := range r.Dirs {
		dir := filepath.Join(root, fmt.Sprint(i))
		dirs = append(dirs, dir)
		if err := os.Mkdir(dir, 0o700); err != nil {
			return outcome(err, answer{})
		}
		for name, text := range files {
			if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
				return outcome(err, answer{})
			}
		}
	}
	cache, err := cdi.NewCache(cdi.WithSpecDirs(dirs...), cdi.WithAutoRefresh(false))
	if err != nil {
		return outcome(err, answer{})
	}
	a := answer{"list": cache.ListDevices(), "files_with_errors": filesWithErrors(root, cache)}
	unresolved, err := cache.InjectDevices(r.OCI, r.Devices...)
	a["unresolved"] = unresolved
	if err == nil {
		a["oci"] = r.OCI
	}
	return outcome(err, a)
}

func timed(r record) answer {
	begin := cpuSeconds()
	cache, err := cdi.NewCache(cdi.WithSpecDirs(r.Arg...), cdi.WithAutoRefresh(false))
	if err != nil {
		return outcome(err, answer{})
	}
	read := cpuSeconds()
	_, err = cache.InjectDevices(&oci.Spec{}, r.Devices...)
	if err != nil {
		return outcome(err, answer{})
	}
	injected := cpuSeconds()
	err = cache.Refresh()
	refreshed := cpuSeconds()
	return outcome(err, answer{"read_s": read - begin, "inject_s": injected - read, "refresh_s": refreshed - injected})
}

// cpuSeconds is what this process has had of the processors so far: who else is busy does not change it.
func cpuSeconds() float64 {
	var usage syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &usage)
	return float64(usage.Utime.Nano()+usage.Stime.Nano()) / 1e9
}

func filesWithErrors(root string, cache *cdi.Cache) []string {
	var files []string
	for path, errs := range cache.GetErrors() {
		if len(errs) > 0 {
			files = append(files, strings.TrimPrefix(path, root+"/"))
		}
	}
	sort.Strings(files)
	return files
}
