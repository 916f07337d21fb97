package interop

import (
	"bufio"
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/gorilla/websocket"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/portforward"
	"k8s.io/client-go/tools/remotecommand"
	"k8s.io/client-go/transport/spdy"
	utilexec "k8s.io/client-go/util/exec"
)

// transports are the two ways in which clients of different age carry several streams over one connection.
var transports = []string{"websocket", "spdy"}

// executor runs or attaches to a program over one of the transports.
func executor(t *testing.T, transport string, url *url.URL) remotecommand.Executor {
	t.Helper()
	var e remotecommand.Executor
	var err error
	if transport == "spdy" {
		e, err = remotecommand.NewSPDYExecutor(shared.config, "POST", url)
	} else {
		e, err = remotecommand.NewWebSocketExecutor(shared.config, "GET", url.String())
	}
	must(t, err)
	return e
}

func execURL(ns, pod string, options *corev1.PodExecOptions) *url.URL {
	return shared.client.CoreV1().RESTClient().Post().Resource("pods").Namespace(ns).Name(pod).SubResource("exec").
		VersionedParams(options, scheme.ParameterCodec).URL()
}

// Logs by WebSocket, in each protocol that kube-apiserver has for them.
func TestLogsByWebSocket(t *testing.T) {
	ns := namespace(t, shared)
	launch(t, shared, ns, sleeper("p", "echo hello", "trap 'exit 0' TERM; sleep 3600 & wait"))
	tls, err := rest.TLSConfigFor(shared.config)
	must(t, err)
	url := shared.client.CoreV1().Pods(ns).GetLogs("p", &corev1.PodLogOptions{Follow: true}).URL()
	url.Scheme = "wss"
	header := http.Header{}
	if shared.config.BearerToken != "" {
		header.Set("Authorization", "Bearer "+shared.config.BearerToken)
	}
	dial := func(protocols ...string) (*websocket.Conn, *http.Response, error) {
		dialer := websocket.Dialer{TLSClientConfig: tls, Subprotocols: protocols}
		return dialer.DialContext(within(t), url.String(), header)
	}
	for _, protocol := range []string{"", "binary.k8s.io", "base64.binary.k8s.io"} {
		var offered []string
		if protocol != "" {
			offered = []string{"other", protocol}
		}
		connection, _, err := dial(offered...)
		must(t, err)
		defer connection.Close()
		if connection.Subprotocol() != protocol {
			t.Fatalf("%q was chosen of %q", connection.Subprotocol(), offered)
		}
		must(t, connection.SetReadDeadline(time.Now().Add(time.Minute)))
		var log []byte
		for string(log) != "hello\n" {
			kind, message, err := connection.ReadMessage()
			must(t, err)
			if text := protocol == "base64.binary.k8s.io"; text != (kind == websocket.TextMessage) {
				t.Fatalf("%q: a message of type %d", protocol, kind)
			} else if text {
				message, err = base64.StdEncoding.DecodeString(string(message))
				must(t, err)
			}
			if log = append(log, message...); len(log) > len("hello\n") {
				t.Fatalf("%q: the log is %q", protocol, log)
			}
		}
	}
	if _, answer, err := dial("other"); err == nil || answer == nil || answer.StatusCode != http.StatusForbidden {
		t.Fatalf("a protocol that logs do not have: %v, %v", answer, err)
	}
}

func TestExec(t *testing.T) {
	ns := namespace(t, shared)
	launch(t, shared, ns, sleeper("p"))
	for _, transport := range transports {
		t.Run(transport, func(t *testing.T) {
			run := func(stdin io.Reader, command ...string) (string, string, error) {
				var out, errs bytes.Buffer
				options := &corev1.PodExecOptions{Command: command, Stdin: stdin != nil, Stdout: true, Stderr: true}
				err := executor(t, transport, execURL(ns, "p", options)).StreamWithContext(within(t),
					remotecommand.StreamOptions{Stdin: stdin, Stdout: &out, Stderr: &errs})
				return out.String(), errs.String(), err
			}
			out, errs, err := run(nil, "sh", "-c", "echo out; echo err >&2")
			if out != "out\n" || errs != "err\n" || err != nil {
				t.Fatalf("%q, %q, %v", out, errs, err)
			}
			var exit utilexec.CodeExitError
			if _, _, err = run(nil, "sh", "-c", "exit 7"); !errors.As(err, &exit) || exit.Code != 7 {
				t.Fatalf("exit code: %v", err)
			}
			// The end of standard input is passed on, and every byte before it.
			big := bytes.Repeat([]byte("0123456789abcdef"), 200_000)
			out, _, err = run(bytes.NewReader(big), "cat")
			if err != nil || out != string(big) {
				t.Fatalf("%d bytes came back of %d: %v", len(out), len(big), err)
			}
			if _, _, err = run(nil, "no-such-program"); err == nil {
				t.Fatal("a program that does not exist ran")
			}
		})
	}
}

// sizes gives a terminal's size once.
type sizes chan remotecommand.TerminalSize

func (s sizes) Next() *remotecommand.TerminalSize {
	size, more := <-s
	if !more {
		return nil
	}
	return &size
}

func TestExecWithTerminal(t *testing.T) {
	ns := namespace(t, shared)
	launch(t, shared, ns, sleeper("p"))
	for _, transport := range transports {
		t.Run(transport, func(t *testing.T) {
			size := make(sizes, 1)
			size <- remotecommand.TerminalSize{Width: 123, Height: 45}
			defer close(size)
			stdin, typed := io.Pipe()
			output, screen := io.Pipe()
			ctx := within(t)
			done := make(chan error, 1)
			go func() {
				options := &corev1.PodExecOptions{Command: []string{"sh"}, Stdin: true, Stdout: true, TTY: true}
				done <- executor(t, transport, execURL(ns, "p", options)).StreamWithContext(ctx,
					remotecommand.StreamOptions{Stdin: stdin, Stdout: screen, Tty: true, TerminalSizeQueue: size})
				screen.Close()
			}()
			// The size arrives at its own time: the shell asks until it is there.
			_, err := io.WriteString(typed, "until [ \"$(stty size)\" = '45 123' ]; do :; done; echo si''zed; exit 3\n")
			must(t, err)
			text, _ := io.ReadAll(output)
			err = <-done
			var exit utilexec.CodeExitError
			if !strings.Contains(string(text), "sized") || !errors.As(err, &exit) || exit.Code != 3 {
				t.Fatalf("%q, %v", text, err)
			}
		})
	}
}

func TestAttach(t *testing.T) {
	for _, transport := range transports {
		t.Run(transport, func(t *testing.T) {
			ns := namespace(t, shared)
			pod := sleeper("p", "while read line; do echo \"got $line\"; echo \"err $line\" >&2; done; echo over; exit 5")
			pod.Spec.Containers[0].Stdin = true
			pod.Spec.Containers[0].StdinOnce = true
			launch(t, shared, ns, pod)
			url := shared.client.CoreV1().RESTClient().Post().Resource("pods").Namespace(ns).Name("p").SubResource("attach").
				VersionedParams(&corev1.PodAttachOptions{Stdin: true, Stdout: true, Stderr: true}, scheme.ParameterCodec).URL()
			var out, errs bytes.Buffer
			err := executor(t, transport, url).StreamWithContext(within(t), remotecommand.StreamOptions{
				Stdin: strings.NewReader("one\ntwo\n"), Stdout: &out, Stderr: &errs,
			})
			must(t, err)
			if out.String() != "got one\ngot two\nover\n" || errs.String() != "err one\nerr two\n" {
				t.Fatalf("%q, %q", out.String(), errs.String())
			}
			ended := awaitPod(t, shared, ns, "p", "its end", func(pod *corev1.Pod) bool { return pod.Status.Phase == corev1.PodFailed })
			if code := ended.Status.ContainerStatuses[0].State.Terminated.ExitCode; code != 5 {
				t.Fatalf("exit code %d", code)
			}
		})
	}
}

func TestFollowLogs(t *testing.T) {
	ns := namespace(t, shared)
	launch(t, shared, ns, sleeper("p", "echo first", "until [ -e /tmp/go ]; do sleep 0.1; done", "echo second"))
	ctx := within(t)
	stream, err := shared.client.CoreV1().Pods(ns).GetLogs("p", &corev1.PodLogOptions{Follow: true}).Stream(ctx)
	must(t, err)
	defer stream.Close()
	lines := bufio.NewScanner(stream)
	if !lines.Scan() || lines.Text() != "first" {
		t.Fatalf("first line: %q, %v", lines.Text(), lines.Err())
	}
	// Only now may the container go on.
	options := &corev1.PodExecOptions{Command: []string{"touch", "/tmp/go"}, Stdout: true, Stderr: true}
	must(t, executor(t, "websocket", execURL(ns, "p", options)).StreamWithContext(ctx,
		remotecommand.StreamOptions{Stdout: io.Discard, Stderr: io.Discard}))
	if !lines.Scan() || lines.Text() != "second" {
		t.Fatalf("second line: %q, %v", lines.Text(), lines.Err())
	}
	if lines.Scan() || lines.Err() != nil {
		t.Fatalf("after the end: %q, %v", lines.Text(), lines.Err())
	}
}

// echo answers every line until its client has said all.
const echo = `import socketserver
class H(socketserver.StreamRequestHandler):
    def handle(self):
        for line in self.rfile:
            self.wfile.write(b"echo " + line)
        self.wfile.write(b"bye\n")
class S(socketserver.ThreadingTCPServer):
    allow_reuse_address = True
s = S(("127.0.0.1", 0), H)
print(s.server_address[1], flush=True)
s.serve_forever()`

// echoServer runs a TCP server in a pod and returns its port.
func echoServer(t *testing.T, ns string) uint16 {
	t.Helper()
	pod := sleeper("echo")
	pod.Spec.Containers[0].Command = []string{"python3", "-c", echo}
	launch(t, shared, ns, pod)
	stream, err := shared.client.CoreV1().Pods(ns).GetLogs("echo", &corev1.PodLogOptions{Follow: true}).Stream(within(t))
	must(t, err)
	defer stream.Close()
	var port uint16
	_, err = fmt.Fscan(stream, &port)
	must(t, err)
	return port
}

func TestPortForward(t *testing.T) {
	ns := namespace(t, shared)
	port := echoServer(t, ns)
	target := shared.client.CoreV1().RESTClient().Post().Resource("pods").Namespace(ns).Name("echo").SubResource("portforward").URL()
	for _, transport := range transports {
		t.Run(transport, func(t *testing.T) {
			round, upgrader, err := spdy.RoundTripperFor(shared.config)
			must(t, err)
			dialer := spdy.NewDialer(upgrader, &http.Client{Transport: round}, "POST", target)
			if transport == "websocket" {
				dialer, err = portforward.NewSPDYOverWebsocketDialer(target, shared.config)
				must(t, err)
			}
			stop, ready := make(chan struct{}), make(chan struct{})
			defer close(stop)
			forwarder, err := portforward.New(dialer, []string{fmt.Sprintf("0:%d", port), "0:1"}, stop, ready, io.Discard, io.Discard)
			must(t, err)
			over := make(chan error, 1)
			go func() { over <- forwarder.ForwardPorts() }()
			select {
			case <-ready:
			case err := <-over:
				t.Fatal(err)
			case <-time.After(patience):
				t.Fatal("not ready")
			}
			ports, err := forwarder.GetPorts()
			must(t, err)
			// Several connections share the one to the server.
			var clients []net.Conn
			for i := range 5 {
				conn, err := net.Dial("tcp", fmt.Sprint("127.0.0.1:", ports[0].Local))
				must(t, err)
				defer conn.Close()
				must(t, conn.SetDeadline(time.Now().Add(patience)))
				_, err = fmt.Fprintf(conn, "hello %d\n", i)
				must(t, err)
				clients = append(clients, conn)
			}
			for i, conn := range clients {
				must(t, conn.(*net.TCPConn).CloseWrite())
				text, err := io.ReadAll(conn)
				if err != nil || string(text) != fmt.Sprintf("echo hello %d\nbye\n", i) {
					t.Fatalf("connection %d: %q, %v", i, text, err)
				}
			}
			big, err := net.Dial("tcp", fmt.Sprint("127.0.0.1:", ports[0].Local))
			must(t, err)
			defer big.Close()
			must(t, big.SetDeadline(time.Now().Add(patience)))
			line := strings.Repeat("x", 1_000_000)
			go func() {
				fmt.Fprintln(big, line)
				_ = big.(*net.TCPConn).CloseWrite()
			}()
			text, err := io.ReadAll(big)
			if err != nil || string(text) != "echo "+line+"\nbye\n" {
				t.Fatalf("%d bytes: %v", len(text), err)
			}
			// A port that nobody listens on ends that connection and is reported.
			refused, err := net.Dial("tcp", fmt.Sprint("127.0.0.1:", ports[1].Local))
			must(t, err)
			must(t, refused.SetDeadline(time.Now().Add(patience)))
			if n, err := refused.Read(make([]byte, 1)); n != 0 || err == nil {
				t.Fatalf("read from a port without a listener: %d, %v", n, err)
			}
			// That is how clients know; they give up the whole session.
			if err := <-over; !errors.Is(err, portforward.ErrLostConnectionToPod) {
				t.Fatalf("the end of the session: %v", err)
			}
		})
	}
}

// The node is reached through the API server as well.
func TestNodeProxy(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	body, err := shared.client.CoreV1().RESTClient().Get().Resource("nodes").Name("node-0").SubResource("proxy").Suffix("healthz").DoRaw(ctx)
	if err != nil || string(body) != "ok" {
		t.Fatalf("%q, %v", body, err)
	}
	nodes, err := shared.client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	must(t, err)
	if len(nodes.Items) != 1 {
		t.Fatalf("%d nodes", len(nodes.Items))
	}
}
