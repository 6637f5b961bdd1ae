// Package systemd is what gpupool and systemd say to each other: the notifications of
// a server that runs as a service, and the unit that it runs under.
//
// A notification is one datagram. Nothing here grows with the cluster.
package systemd

import (
	"context"
	"fmt"
	"net"
	"strconv"
	"time"
)

// Notifier tells the service manager how the server is. The zero value tells nobody.
type Notifier struct {
	send     func(state string) error
	watchdog time.Duration // silence after which the manager restarts the server; 0: it does not watch
}

// NewNotifier reads what systemd put into the environment of the process with this pid.
// Without it the notifier tells nobody.
func NewNotifier(getenv func(string) string, pid int) (Notifier, error) {
	socket := getenv("NOTIFY_SOCKET")
	if socket == "" {
		return Notifier{}, nil
	}
	if socket[0] != '/' && socket[0] != '@' {
		return Notifier{}, fmt.Errorf("$NOTIFY_SOCKET is %q: expected a path or an abstract name (@...)", socket)
	}
	n := Notifier{send: func(state string) error { return datagram(socket, state) }}
	usec := getenv("WATCHDOG_USEC")
	if usec == "" {
		return n, nil
	}
	us, err := strconv.ParseInt(usec, 10, 64)
	if err != nil || us <= 0 {
		return n, fmt.Errorf("$WATCHDOG_USEC is %q: expected microseconds", usec)
	}
	if of := getenv("WATCHDOG_PID"); of == "" || of == strconv.Itoa(pid) {
		n.watchdog = time.Duration(us) * time.Microsecond
	}
	return n, nil
}

// datagram sends one message; a leading @ is an abstract name in package net, too.
func datagram(socket, state string) error {
	c, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: socket, Net: "unixgram"})
	if err != nil {
		return fmt.Errorf("systemd cannot be told how the server is: %w", err)
	}
	defer c.Close()
	if _, err := c.Write([]byte(state)); err != nil {
		return fmt.Errorf("systemd cannot be told how the server is: %w", err)
	}
	return nil
}

func (n Notifier) tell(state string) error {
	if n.send == nil {
		return nil
	}
	return n.send(state)
}

// Ready says that the server serves, and what systemctl status shows of it.
func (n Notifier) Ready(status string) error { return n.tell("READY=1\nSTATUS=" + status) }

// Stopping says that the server ends because it was asked to.
func (n Notifier) Stopping() error { return n.tell("STOPPING=1\nSTATUS=stopping; tasks go on") }

// Watch keeps the watchdog quiet until ctx ends, at half its time, for as long as alive
// comes back with nil. A server that hangs in alive is restarted, and so is one that
// only answers with errors; failed is told of those, and of a manager that does not listen.
func (n Notifier) Watch(ctx context.Context, alive func(context.Context) error, failed func(error)) {
	if n.send == nil || n.watchdog == 0 {
		return
	}
	tick := time.NewTicker(n.watchdog / 2)
	defer tick.Stop()
	for {
		err := alive(ctx)
		if ctx.Err() != nil {
			return
		}
		if err == nil {
			err = n.tell("WATCHDOG=1")
		}
		if err != nil {
			failed(err)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}
