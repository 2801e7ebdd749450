//go:build kubelet_without_context

package main

import (
	"github.com/spf13/cobra"
	"k8s.io/kubernetes/cmd/kubelet/app"
)

// Kubernetes 1.30 and 1.31.
func newKubeletCommand() *cobra.Command { return app.NewKubeletCommand() }
