package client

import (
	"bufio"
	"context"
	"errors"
	"strconv"
	"strings"
)

// Memory is the resident memory of the server in bytes, as its metrics say. It takes an
// admin's token, or a server on this machine.
func (c *Client) Memory(ctx context.Context) (int64, error) {
	k := get("/metrics", nil)
	k.accept = "text/plain"
	resp, err := c.open(ctx, k)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
		if v, is := strings.CutPrefix(lines.Text(), "process_resident_memory_bytes "); is {
			f, err := strconv.ParseFloat(v, 64)
			return int64(f), err
		}
	}
	return 0, errors.New("the server's metrics do not say how much memory it holds: expected process_resident_memory_bytes, which Linux has")
}
