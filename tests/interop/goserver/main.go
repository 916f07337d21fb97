// goserver is a Kubernetes API server for tests: the library that kube-apiserver is built on, with etcd in the same
// process, serving the built-in kinds that a scheduler and controllers use. Storage, watch cache, streamed lists,
// server-side apply, fair queueing and TLS are the library's own. What it leaves out is what kube-apiserver has beyond
// that library: validation, conversion between versions, most of admission, and authorization (everybody may do
// everything).
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/klog/v2"
)

// options are what the command line says.
type options struct {
	dataDir    string        // etcd's data, certificates, tokens
	port       int           // of the API, on the loopback interface; 0 picks one
	kubeconfig string        // written when the server is ready
	etcd       string        // address of an etcd of its own; empty: within this process
	compaction time.Duration // how often history is forgotten
	inFlight   int           // requests at once, above that 429; 0: the defaults, with fair queueing
}

func main() {
	o := options{}
	flag.StringVar(&o.dataDir, "data-dir", "", "directory of etcd, certificates and tokens")
	flag.IntVar(&o.port, "port", 0, "port of the API on the loopback interface; 0 picks one")
	flag.StringVar(&o.kubeconfig, "kubeconfig-out", "", "written when the server is ready; default DATA-DIR/kubeconfig")
	flag.StringVar(&o.etcd, "etcd", "", "address of an etcd that runs already, e.g. http://127.0.0.1:2379")
	etcdOnly := flag.String("etcd-only", "", "serve nothing but etcd, at this address")
	flag.DurationVar(&o.compaction, "compaction", 5*time.Minute, "how often history is forgotten, as --etcd-compaction-interval")
	flag.IntVar(&o.inFlight, "max-in-flight", 0, "answer 429 above so many requests, without fair queueing")
	gates := flag.String("feature-gates", "", "of the library, e.g. WatchList=false")
	klog.InitFlags(nil)
	flag.Parse()

	if err := run(o, *etcdOnly, *gates); err != nil {
		fmt.Fprintln(os.Stderr, "goserver:", err)
		os.Exit(1)
	}
}

func run(o options, etcdOnly, gates string) error {
	if o.dataDir == "" {
		return fmt.Errorf("-data-dir is missing")
	}
	if o.kubeconfig == "" {
		o.kubeconfig = o.dataDir + "/kubeconfig"
	}
	if err := os.MkdirAll(o.dataDir, 0o700); err != nil {
		return err
	}
	if gates != "" {
		if err := utilfeature.DefaultMutableFeatureGate.Set(gates); err != nil {
			return err
		}
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()

	if o.etcd == "" {
		stopEtcd, address, err := startEtcd(o.dataDir+"/etcd", etcdOnly)
		if err != nil {
			return err
		}
		defer stopEtcd()
		o.etcd = address
	}
	if etcdOnly != "" {
		<-ctx.Done()
		return nil
	}
	return serve(ctx, o)
}
