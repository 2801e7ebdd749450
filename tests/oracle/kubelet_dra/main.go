// Command kubelet-dra is the part of a kubelet that prepares claims: its DRA manager and its plugin manager, without pods.
//
// Usage: kubelet-dra KUBECONFIG NODE FOLDER REGISTRY. The managers keep their state in FOLDER, and look for plugins in
// REGISTRY. It reads one JSON object per line and answers each with one; the first one has the pods that the node runs.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"sync"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"
	registerapi "k8s.io/kubelet/pkg/apis/pluginregistration/v1"
	"k8s.io/kubernetes/pkg/kubelet/cm/dra"
	"k8s.io/kubernetes/pkg/kubelet/config"
	"k8s.io/kubernetes/pkg/kubelet/pluginmanager"
)

// mostBytes is the longest line that is read: a pod of a test has about a kilobyte.
const mostBytes = 1 << 20

type request struct {
	Op   string    `json:"op"` // "start", "prepare", "devices" or "unprepare"
	Pod  *v1.Pod   `json:"pod"`
	Pods []*v1.Pod `json:"pods"` // of "start"
}

type answer struct {
	Error   string   `json:"error"`
	Devices []string `json:"devices"` // CDI names of the pod's first container
}

// activePods are the pods that the kubelet would say run on the node.
type activePods struct {
	lock sync.Mutex
	pods map[types.UID]*v1.Pod
}

func (a *activePods) add(pods ...*v1.Pod) {
	a.lock.Lock()
	defer a.lock.Unlock()
	for _, pod := range pods {
		a.pods[pod.UID] = pod
	}
}

func (a *activePods) remove(pod *v1.Pod) {
	a.lock.Lock()
	defer a.lock.Unlock()
	delete(a.pods, pod.UID)
}

func (a *activePods) list() []*v1.Pod {
	a.lock.Lock()
	defer a.lock.Unlock()
	listed := make([]*v1.Pod, 0, len(a.pods))
	for _, pod := range a.pods {
		listed = append(listed, pod)
	}
	return listed
}

func main() {
	if len(os.Args) != 5 {
		fmt.Fprintln(os.Stderr, "usage: kubelet-dra KUBECONFIG NODE FOLDER REGISTRY")
		os.Exit(2)
	}
	if err := serve(os.Args[1], os.Args[2], os.Args[3], os.Args[4]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func serve(kubeconfig, node, folder, registry string) error {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	active := &activePods{pods: map[types.UID]*v1.Pod{}}
	var manager *dra.Manager
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, mostBytes)
	answers := json.NewEncoder(os.Stdout)
	for lines.Scan() {
		var asked request
		if err := json.Unmarshal(lines.Bytes(), &asked); err != nil {
			return err
		}
		var given answer
		var err error
		if asked.Op == "start" {
			active.add(asked.Pods...)
			manager, err = start(ctx, kubeconfig, node, folder, registry, active)
		} else {
			given.Devices, err = do(ctx, manager, active, asked)
		}
		if err != nil {
			given.Error = err.Error()
		}
		if err := answers.Encode(given); err != nil {
			return err
		}
	}
	if manager != nil {
		cancel()
		manager.Stop()
	}
	return lines.Err()
}

// start does what a kubelet does with both managers (pkg/kubelet/kubelet.go).
func start(ctx context.Context, kubeconfig, node, folder, registry string, active *activePods) (*dra.Manager, error) {
	access, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, err
	}
	access.ContentType = "application/vnd.kubernetes.protobuf" // as a kubelet's
	access.QPS, access.Burst = 50, 100                         // kubeAPIQPS and kubeAPIBurst
	client, err := kubernetes.NewForConfig(access)
	if err != nil {
		return nil, err
	}
	manager, err := dra.NewManager(klog.FromContext(ctx), client, folder)
	if err != nil {
		return nil, err
	}
	getNode := func(ctx context.Context) (*v1.Node, error) {
		return client.CoreV1().Nodes().Get(ctx, node, metav1.GetOptions{})
	}
	ready := config.NewSourcesReady(func(sets.Set[string]) bool { return true })
	if err := manager.Start(ctx, active.list, getNode, ready); err != nil {
		return nil, err
	}
	plugins := pluginmanager.NewPluginManager(registry, nil)
	plugins.AddHandler(registerapi.DRAPlugin, manager.GetWatcherHandler())
	go plugins.Run(ctx, ready, ctx.Done())
	return manager, nil
}

func do(ctx context.Context, manager *dra.Manager, active *activePods, asked request) ([]string, error) {
	switch asked.Op {
	case "prepare":
		active.add(asked.Pod)
		return nil, manager.PrepareResources(ctx, asked.Pod)
	case "devices":
		info, err := manager.GetResources(asked.Pod, &asked.Pod.Spec.Containers[0])
		if err != nil {
			return nil, err
		}
		names := []string{}
		for _, device := range info.CDIDevices {
			names = append(names, device.Name)
		}
		return names, nil
	case "unprepare":
		err := manager.UnprepareResources(ctx, asked.Pod)
		if err == nil {
			active.remove(asked.Pod)
		}
		return nil, err
	default:
		return nil, fmt.Errorf("unknown op %q", asked.Op)
	}
}
