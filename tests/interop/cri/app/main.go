// Command app is the only program of the images that the tests make: what they need of a shell, in one static file.
package main

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"
)

func main() {
	command, arguments := "pause", []string{}
	if len(os.Args) > 1 {
		command, arguments = os.Args[1], os.Args[2:]
	}
	switch command {
	case "pause":
		wait()
	case "env": // prints the environment, and waits
		for _, line := range os.Environ() {
			fmt.Println(line)
		}
		fmt.Println("end of environment")
		wait()
	case "look": // prints what the container sees, and what is below paths
		look()
	case "count": // prints numbers until it is ended
		for n := 0; ; n++ {
			fmt.Println("count", n)
			time.Sleep(10 * time.Millisecond)
		}
	case "say": // say OUT ERR CODE
		fmt.Println(arguments[0])
		fmt.Fprintln(os.Stderr, arguments[1])
		code, _ := strconv.Atoi(arguments[2])
		os.Exit(code)
	case "cat":
		_, _ = io.Copy(os.Stdout, os.Stdin)
	case "show": // prints files
		show(arguments)
	case "show-and-wait": // prints files, and waits
		show(arguments)
		fmt.Println("end of files")
		wait()
	case "write": // write FILE TEXT
		if err := os.WriteFile(arguments[0], []byte(arguments[1]), 0o644); err != nil {
			fmt.Println("error:", err)
			os.Exit(1)
		}
		if len(arguments) > 2 {
			wait()
		}
	case "echo": // answers lines in capitals, on a port that it prints
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		fmt.Println("listening on", listener.Addr().(*net.TCPAddr).Port, "now")
		for {
			connection, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				defer connection.Close()
				lines := bufio.NewScanner(connection)
				for lines.Scan() {
					fmt.Fprintln(connection, strings.ToUpper(lines.Text()))
				}
				fmt.Fprintln(connection, "BYE")
			}()
		}
	case "admit": // admit ADDRESS CERTIFICATE KEY: an admission webhook
		fmt.Println("error:", admit(arguments[0], arguments[1], arguments[2]))
		os.Exit(1)
	case "serve": // serve ADDRESS ADDRESS: answers probes by HTTP and by gRPC
		fmt.Println("error:", serve(arguments[0], arguments[1]))
		os.Exit(1)
	case "holds": // holds SIGN: what a probe runs
		if !holds(arguments[0]) {
			os.Exit(1)
		}
	case "remove": // remove FILE
		if err := os.Remove(arguments[0]); err != nil {
			fmt.Println("error:", err)
			os.Exit(1)
		}
	case "eat": // uses up memory
		var all [][]byte
		for {
			piece := make([]byte, 1<<20)
			for i := range piece {
				piece[i] = byte(i)
			}
			all = append(all, piece)
			_ = all
		}
	}
}

// show prints files.
func show(names []string) {
	for _, name := range names {
		text, err := os.ReadFile(name)
		if err != nil {
			fmt.Println("error:", err)
			continue
		}
		os.Stdout.Write(text)
	}
}

// wait waits until it is told to end.
func wait() {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT)
	<-signals
}
