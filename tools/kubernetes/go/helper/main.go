// Command helper holds the two small programs a test cluster needs besides Kubernetes:
// "pause" keeps a node or pod sandbox alive, "forward" relays TCP connections into a
// network namespace. It uses the standard library only, so it builds in seconds.
package main

import (
	"fmt"
	"io"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"syscall"
)

func main() {
	name, args := filepath.Base(os.Args[0]), os.Args[1:]
	if name == "helper" && len(args) > 0 {
		name, args = args[0], args[1:]
	}
	switch {
	case name == "pause":
		pause()
	case name == "forward" && len(args) == 2:
		if err := forward(args[0], args[1]); err != nil {
			fmt.Fprintln(os.Stderr, "forward:", err)
			os.Exit(1)
		}
	default:
		fmt.Fprintln(os.Stderr, "usage: helper pause | helper forward FD HOST:PORT")
		os.Exit(2)
	}
}

// pause waits for a signal to stop and reaps orphans meanwhile: it runs as PID 1.
func pause() {
	signals := make(chan os.Signal, 16)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGCHLD)
	for received := range signals {
		if received != syscall.SIGCHLD {
			return
		}
		for {
			pid, err := syscall.Wait4(-1, nil, syscall.WNOHANG, nil)
			if pid <= 0 || err != nil {
				break
			}
		}
	}
}

// forward relays every connection of an inherited listening socket to an address. The socket
// belongs to the namespace it was opened in, outgoing connections to that of the process.
func forward(descriptor, address string) error {
	fd, err := strconv.Atoi(descriptor)
	if err != nil {
		return err
	}
	listener, err := net.FileListener(os.NewFile(uintptr(fd), "listener"))
	if err != nil {
		return err
	}
	for {
		client, err := listener.Accept()
		if err != nil {
			return err
		}
		go relay(client.(*net.TCPConn), address)
	}
}

func relay(client *net.TCPConn, address string) {
	defer client.Close()
	upstream, err := net.Dial("tcp", address)
	if err != nil {
		return
	}
	server := upstream.(*net.TCPConn)
	defer server.Close()
	done := make(chan struct{})
	go func() {
		copyHalf(server, client)
		close(done)
	}()
	copyHalf(client, server)
	<-done
}

// copyHalf copies one direction until its end and passes the end on.
func copyHalf(to, from *net.TCPConn) {
	_, _ = io.Copy(to, from) // uses splice(2)
	_ = to.CloseWrite()
	_ = from.CloseRead()
}
