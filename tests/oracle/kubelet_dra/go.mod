// The versions are those of tools/realcluster/kube/go.mod, with which the program is built; Go wants a file here.
module kerf.dev/oracle/kubelet-dra
