//go:build tools

// Package controlplane names the programs of a Kubernetes control plane, so that go.sum pins all that they need.
package controlplane

import (
	_ "go.etcd.io/etcd/server/v3"
	_ "k8s.io/kubernetes/cmd/kube-apiserver"
	_ "k8s.io/kubernetes/cmd/kube-controller-manager"
)
