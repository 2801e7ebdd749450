// Command kube is Kubernetes in one program: control plane, node agent, etcd and kubectl; its first argument names the part.
package main

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"
	"go.etcd.io/etcd/server/v3/etcdmain"
	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/metrics/prometheus/clientgo" // as upstream's own commands register their metrics
	_ "k8s.io/component-base/metrics/prometheus/version"
	kubectl "k8s.io/kubectl/pkg/cmd"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllermanager "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
)

var parts = map[string]func() *cobra.Command{
	"apiserver":          apiserver.NewAPIServerCommand,
	"controller-manager": controllermanager.NewControllerManagerCommand,
	"scheduler":          func() *cobra.Command { return scheduler.NewSchedulerCommand() },
	"kubelet":            newKubeletCommand,
	"kubectl":            kubectl.NewDefaultKubectlCommand,
}

func main() {
	if len(os.Args) < 2 {
		usage()
	}
	part := os.Args[1]
	os.Args = append([]string{"kube-" + part}, os.Args[2:]...)
	if part == "etcd" {
		etcdmain.Main(append([]string{"etcd"}, os.Args[1:]...))
		return
	}
	newCommand, known := parts[part]
	if !known {
		usage()
	}
	os.Exit(cli.Run(newCommand()))
}

func usage() {
	fmt.Fprintln(os.Stderr, "usage: kube etcd|apiserver|controller-manager|scheduler|kubelet|kubectl [flags]")
	os.Exit(2)
}
