// Command kubectl is the kubectl of the module's Kubernetes release: the tests run with it beside whatever kubectl
// the machine has, so that the newest is always among them.
package main

import (
	"os"

	_ "k8s.io/client-go/plugin/pkg/client/auth"
	"k8s.io/component-base/cli"
	"k8s.io/kubectl/pkg/cmd"
)

func main() {
	os.Exit(cli.Run(cmd.NewDefaultKubectlCommand()))
}
