package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gpupool/gpupool/internal/journal/redis/redistest"
)

// network is some machines, each a network namespace, on a bridge in another. Nothing of
// it touches the network of this machine.
type network struct {
	t      *testing.T
	prefix string
	nodes  []string
}

// stormSubnet is only known inside the namespaces.
const stormSubnet = "10.231.0."

func newNetwork(t *testing.T) *network {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root: network namespaces are made")
	}
	redistest.Need(t, "ip", "nsenter", "redis-sentinel")
	n := &network{t: t, prefix: fmt.Sprintf("gps%d", os.Getpid())}
	if out, err := exec.Command("ip", "netns", "add", n.hub()).CombinedOutput(); err != nil {
		if os.Getenv("CI") != "" {
			t.Fatalf("network namespaces cannot be made here, and CI must run this test: %v\n%s", err, out)
		}
		t.Skipf("network namespaces cannot be made here: %v\n%s", err, out)
	}
	t.Cleanup(func() {
		for _, node := range append(n.nodes, "h") {
			exec.Command("ip", "netns", "del", n.prefix+node).Run() //nolint:errcheck // gone already, then
		}
	})
	n.ip("-n", n.hub(), "link", "add", "br0", "type", "bridge")
	n.ip("-n", n.hub(), "link", "set", "br0", "up")
	return n
}

func (n *network) hub() string { return n.prefix + "h" }

func (n *network) ip(args ...string) {
	n.t.Helper()
	if out, err := exec.Command("ip", args...).CombinedOutput(); err != nil {
		n.t.Fatalf("ip %s: %v\n%s", strings.Join(args, " "), err, out)
	}
}

// add makes a machine and returns its address.
func (n *network) add(node string, last int) string {
	n.t.Helper()
	ns, addr := n.prefix+node, fmt.Sprint(stormSubnet, last)
	n.ip("netns", "add", ns)
	n.nodes = append(n.nodes, node)
	n.ip("link", "add", "eth0", "netns", ns, "type", "veth", "peer", "name", "to-"+node, "netns", n.hub())
	n.ip("-n", n.hub(), "link", "set", "to-"+node, "master", "br0", "up")
	n.ip("-n", ns, "addr", "add", addr+"/24", "dev", "eth0")
	n.ip("-n", ns, "link", "set", "eth0", "up")
	n.ip("-n", ns, "link", "set", "lo", "up")
	return addr
}

// cut takes a machine off the network, or puts it back.
func (n *network) cut(node string, off bool) {
	n.t.Helper()
	n.ip("-n", n.hub(), "link", "set", "to-"+node, map[bool]string{true: "down", false: "up"}[off])
}

// block makes addresses unreachable from a machine, or reachable again.
func (n *network) block(node string, off bool, addrs ...string) {
	n.t.Helper()
	for _, a := range addrs {
		n.ip("-n", n.prefix+node, "route", map[bool]string{true: "add", false: "del"}[off], "blackhole", a+"/32")
	}
}

// command runs a program on a machine; its process is the program itself.
func (n *network) command(node, name string, args ...string) *exec.Cmd {
	return exec.Command("nsenter", append([]string{"--net=/run/netns/" + n.prefix + node, name}, args...)...)
}

// dial connects from a machine.
func (n *network) dial(node string) func(ctx context.Context, network, addr string) (net.Conn, error) {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		type result struct {
			c   net.Conn
			err error
		}
		done := make(chan result, 1)
		go func() {
			runtime.LockOSThread() // and never unlocked: the thread goes with this goroutine
			ns, err := os.Open("/run/netns/" + n.prefix + node)
			if err != nil {
				done <- result{nil, err}
				return
			}
			defer ns.Close()
			if err := unix.Setns(int(ns.Fd()), unix.CLONE_NEWNET); err != nil {
				done <- result{nil, err}
				return
			}
			c, err := (&net.Dialer{Timeout: time.Second}).DialContext(ctx, network, addr)
			done <- result{c, err}
		}()
		r := <-done
		return r.c, r.err
	}
}
