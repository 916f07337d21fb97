package main

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
)

// patience is how long anything may take before a test fails.
const patience = 2 * time.Minute

// serverVariable makes the test binary the server itself, so that nothing else has to be built.
const serverVariable = "GOSERVER_IS_SERVER"

func TestMain(m *testing.M) {
	if os.Getenv(serverVariable) != "" {
		main()
		return
	}
	if os.Getenv("ALLOT_BIN") == "" {
		fmt.Println("skipped: ALLOT_BIN does not name the allot binary")
		return
	}
	os.Exit(m.Run())
}

// process is one component, which tests kill and start again.
type process struct {
	t       *testing.T
	name    string
	program string
	args    []string
	env     []string
	log     string
	running *exec.Cmd
}

func (p *process) start() {
	p.t.Helper()
	log, err := os.OpenFile(p.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	must(p.t, err)
	defer log.Close()
	p.running = exec.Command(p.program, p.args...)
	p.running.Env = append(os.Environ(), p.env...)
	p.running.Stdout, p.running.Stderr = log, log
	// Components must not outlive the tests, however they end.
	p.running.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	must(p.t, p.running.Start())
}

// kill ends a process without a warning.
func (p *process) kill() {
	if p.running != nil && p.running.ProcessState == nil {
		_ = p.running.Process.Signal(syscall.SIGKILL)
		_ = p.running.Wait()
	}
}

// restart kills a process and starts it again after a while.
func (p *process) restart(after time.Duration) {
	p.t.Helper()
	p.kill()
	time.Sleep(after)
	p.start()
}

// freeze stops a process for a while, as an overloaded machine does.
func (p *process) freeze(d time.Duration) {
	must(p.t, p.running.Process.Signal(syscall.SIGSTOP))
	time.Sleep(d)
	must(p.t, p.running.Process.Signal(syscall.SIGCONT))
}

// cluster is etcd, API server, and as many schedulers and controllers as a test wants.
type cluster struct {
	t            *testing.T
	dir          string
	etcd, server *process
	schedulers   []*process
	controllers  []*process
	client       kubernetes.Interface
	// elect makes a component that runs alone elect itself, too.
	elect bool
}

// newCluster starts etcd and the server, with `flags`.
func newCluster(t *testing.T, flags ...string) *cluster {
	t.Helper()
	c := &cluster{t: t, dir: t.TempDir()}
	address, err := freeAddress()
	must(t, err)
	// Clients come back to the same port.
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	port := listener.Addr().(*net.TCPAddr).Port
	must(t, listener.Close())
	self, err := os.Executable()
	must(t, err)
	c.etcd = c.process("etcd", self, "-data-dir", c.dir, "-etcd-only", address)
	c.server = c.process("server", self,
		append([]string{"-data-dir", c.dir, "-etcd", address, "-port", fmt.Sprint(port)}, flags...)...)
	for _, p := range []*process{c.etcd, c.server} {
		p.env = []string{serverVariable + "=1"}
	}
	c.etcd.start()
	c.server.start()
	c.await("the server is ready", func(context.Context) error {
		_, err := os.Stat(c.dir + "/kubeconfig")
		return err
	})
	config, err := clientcmd.BuildConfigFromFlags("", c.dir+"/kubeconfig")
	must(t, err)
	// Tests must not be slowed down by the client's own rate limit.
	config.QPS, config.Burst, config.Timeout = 1000, 2000, 10*time.Second
	c.client, err = kubernetes.NewForConfig(config)
	must(t, err)
	return c
}

func (c *cluster) process(name, program string, args ...string) *process {
	p := &process{t: c.t, name: name, program: program, args: args, log: filepath.Join(c.dir, name+".log")}
	c.t.Cleanup(func() {
		p.kill()
		if c.t.Failed() {
			text, _ := os.ReadFile(p.log)
			lines := bytes.Split(text, []byte("\n"))
			c.t.Logf("the last of %s:\n%s", name, bytes.Join(lines[max(0, len(lines)-20):], []byte("\n")))
		}
	})
	return p
}

// run starts `n` schedulers and controllers; more than one elect a leader.
func (c *cluster) run(n int) {
	c.t.Helper()
	elect := fmt.Sprintf("--leader-elect=%t", n > 1 || c.elect)
	config := c.dir + "/scheduler.yaml"
	must(c.t, os.WriteFile(config, []byte(schedulerConfig), 0o600))
	bin := os.Getenv("ALLOT_BIN")
	for i := range n {
		scheduler := c.process(fmt.Sprint("scheduler-", i), bin, "scheduler", elect, "-v",
			"--kubeconfig", c.dir+"/kubeconfig-kube-scheduler", "--config", config)
		controllers := c.process(fmt.Sprint("controllers-", i), bin, "controllers", elect, "-v", "--controllers", controllerNames,
			"--kubeconfig", c.dir+"/kubeconfig-kube-controller-manager")
		scheduler.start()
		controllers.start()
		c.schedulers = append(c.schedulers, scheduler)
		c.controllers = append(c.controllers, controllers)
	}
}

// Those that come to a Kubernetes, and what kube-controller-manager has there: who deletes what its owner left, and who
// ends namespaces.
const controllerNames = "*,garbage-collector-controller,namespace-controller"

// A short lease, so that the other process takes over soon.
const schedulerConfig = `
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
clientConnection: {qps: 1000, burst: 2000}
leaderElection: {leaderElect: false, leaseDuration: 5s, renewDeadline: 3s, retryPeriod: 1s}
profiles: [{schedulerName: default-scheduler}]
`

// await repeats a check until it holds.
func (c *cluster) await(what string, check func(context.Context) error) {
	c.t.Helper()
	deadline := time.Now().Add(patience)
	for {
		err := check(context.Background())
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			c.t.Fatalf("%s: %v", what, err)
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// each does something for 0 to n-1, eight at a time.
func each(n int, do func(int)) {
	var all sync.WaitGroup
	permits := make(chan struct{}, 8)
	for i := range n {
		permits <- struct{}{}
		all.Go(func() {
			defer func() { <-permits }()
			do(i)
		})
	}
	all.Wait()
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// expireTokens ends the tokens of the components until it is taken back.
func (c *cluster) expireTokens() (restore func()) {
	path := c.dir + "/tokens"
	text, err := os.ReadFile(path)
	must(c.t, err)
	write := func(text string) { must(c.t, os.WriteFile(path, []byte(text), 0o600)) }
	// The first line is the administrator's.
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	write(strings.Join(lines, "\nexpired-"))
	return func() { write(string(text)) }
}
